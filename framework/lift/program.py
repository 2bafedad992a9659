"""The compiled form of a function for one structure of objects: flat lists of arrays in, a list of arrays out."""

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax

from framework.lift.donation import donatable, require_donated
from framework.lift.effects import Effects, collect, return_donated
from framework.lift.plan import Call
from framework.lift.retrace import Diary, Signature
from framework.lift.sharding import Shardings
from framework.module.graph import Graph, build, walk
from framework.module.ownership import compiling, compiling_scope, still_there


@dataclass(frozen=True)
class Options:
    """How a function is compiled; see `fw.jit`."""

    donate: bool | Literal["strict"] = True
    capture: Literal["refuse", "constant"] = "refuse"
    nested: Literal["cached", "inline"] = "cached"
    max_traces: int | None = None
    static_argnums: int | Sequence[int] = ()
    static_argnames: str | Sequence[str] = ()
    in_shardings: Any = None
    out_shardings: Any = None


@jax.tree_util.register_pytree_node_class
class Outcome:
    """What a flat program returns: arrays, with the effects of its trace in the aux data.

    JAX keeps the tree structure of outputs per compiled signature, so that each signature has the effects of its own
    trace without a cache of ours.
    """

    __slots__ = ("effects", "values")

    def __init__(self, effects: Effects, values: Sequence[Any]) -> None:
        self.effects, self.values = effects, values

    def tree_flatten(self) -> tuple[Sequence[Any], Effects]:
        """Returns the arrays, and the effects as aux data."""
        return self.values, self.effects

    @classmethod
    def tree_unflatten(cls, effects: Effects, values: Sequence[Any]) -> "Outcome":
        """Makes an outcome of arrays and effects."""
        return cls(effects, values)


class Source:
    """What all programs of one compiled function have in common.

    Attributes:
        function: the function that is traced.
        name: its name.
        options: how it is compiled.
        diary: its traces.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function, self.options = function, options
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.diary = Diary(self.name, options.max_traces)


class Program:
    """The compiled form of a function for one structure of objects and static arguments.

    `inner` is the flat traced function, which nested calls bind directly; `outer` wraps it for calls outside of every
    trace, with donation. Wrapping costs no second trace of the user's function: `outer` finds the trace of `inner`.

    Attributes:
        structure: the structure of the objects.
        donated: numbers of the leaves that `outer` gives up.
        kept: numbers of the other leaves.
        captures: what the trace read by closure.
        created: of the leaves that the newest trace made, number of the object and name.
        effects: what the call does, once it is prepared.
        initialisations: by shapes of leaves and arrays, the program that makes those leaves, or None.
    """

    def __init__(self, source: Source, call: Call, graph: Graph, *, nested: bool) -> None:
        # Weak, since modules hold their programs by the compiled function, which could otherwise never be freed.
        self._source = weakref.ref(source)
        self.structure = graph.structure
        self.donated: tuple[int, ...] = ()
        self.kept: tuple[int, ...] = tuple(range(graph.structure.leaf_count))
        self.captures: list[tuple[Any, Any, Any]] = []
        self.created: tuple[tuple[int, Any], ...] = ()
        self.effects: Effects | None = None
        self.initialisations: dict[Any, Any] = {}
        self._nested = nested
        self._lines = [dict(node._lines) if node._lines else None for node in graph.nodes]
        # Only the parts of the call and graph that describe it are kept: their arrays must be free to go.
        self._call = Call(call.treedef, call.roles, [], [], call.statics)
        options = source.options
        wanted = options.in_shardings is not None or options.out_shardings is not None
        self._shardings = Shardings(options.in_shardings, options.out_shardings, call, graph) if wanted else None
        self.inner = jax.jit(self._run)
        self.outer: Any = None

    def _run(self, leaves: list[Any], arrays: list[Any]) -> Outcome:
        source, statics = self.source, self._call.statics
        twins = build(self.structure, leaves)
        roots = [twins[root] for root in self.structure.roots]
        graph = Graph(twins, [], self.structure)
        before = Signature(graph, leaves, statics, arrays, nested=self._nested, lines=self._lines)
        source.diary.note(before)
        args, kwargs = self._call.rebuild(roots, arrays)
        with compiling_scope(constant_captures=source.options.capture == "constant") as reads:
            result = source.function(*args, **kwargs)
            created = list(compiling.created)
        self.captures = [read for read in reads if all(read[0] is not twin for twin in twins)]
        effects, values = collect(self.structure, twins, leaves, result, keep_scalars=self._nested)
        if not effects.same_structure:
            after = walk(roots)
            source.diary.note_end(before, Signature(after, after.gather(), statics, arrays, nested=self._nested))
            number = {id(twin): index for index, twin in enumerate(twins)}
            made = {(number[id(node)], name): value for node, name, value in reversed(created) if id(node) in number}
            self.created = tuple(made)
            values = [*values, *made.values()]  # what they began as, which only `fixpoint` looks at
        return Outcome(effects, values)

    @property
    def source(self) -> Source:
        """The compiled function that this is a program of."""
        source = self._source()
        assert source is not None  # it is what calls the program
        return source

    def is_current(self) -> bool:
        """Tells whether what the trace read by closure is still what is there."""
        return all(still_there(*capture) for capture in self.captures)

    def prepare(self, graph: Graph, arrays: Sequence[Any]) -> None:
        """Traces the function to see what it writes, and makes the program that donates those leaves.

        Args:
            graph: objects of the structure.
            arrays: array arguments.

        Raises:
            LiftError: if `donate="strict"` and a leaf that is written cannot be donated.
        """
        leaves = graph.gather()
        shardings = self._shardings

        def placed(leaves: list[Any], arrays: list[Any]) -> Outcome:
            return self.inner(leaves, arrays if shardings is None else shardings.place_arrays(arrays))

        look: Any = self.inner.eval_shape if shardings is None else functools.partial(jax.eval_shape, placed)
        shapes: Outcome = look(leaves, list(arrays))
        self.effects = shapes.effects
        donated = donatable(shapes.effects, leaves, shapes.values) if self.source.options.donate else ()
        if self.source.options.donate == "strict":
            require_donated(shapes.effects, donated, graph, self.source.name)
        kept = tuple(index for index in range(len(leaves)) if index not in set(donated))

        def flat(given_up: list[Any], rest: list[Any], arrays: list[Any]) -> Outcome:
            merged: list[Any] = [None] * (len(given_up) + len(rest))
            for index, leaf in zip((*donated, *kept), (*given_up, *rest), strict=True):
                merged[index] = leaf
            outcome = placed(merged, arrays)
            values = outcome.values
            if shardings is not None:
                values = shardings.place_results(outcome.effects, values)
            effects, extra = return_donated(outcome.effects, donated)
            # Donation was chosen for the first shapes. Where others do not fit, the leaf goes out as it came in.
            idle = set(donated).difference(donatable(effects, merged, values), extra)
            return Outcome(effects, [*values, *(merged[leaf] for leaf in (*extra, *idle))])

        flat.__name__ = flat.__qualname__ = self.source.name
        self.donated, self.kept = donated, kept
        self.outer = jax.jit(flat, donate_argnums=0)
