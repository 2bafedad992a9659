"""`jit`: compiles a function that mutates the objects it is passed."""

import functools
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import jax

from framework._compat import current_trace
from framework.lift.donation import UNSHARED, donatable, explain_lost, unshare
from framework.lift.effects import Effects, Output, apply, collect, result_of, return_donated
from framework.lift.lifted import moved_leaves
from framework.lift.plan import Call, take_apart, unbind
from framework.lift.retrace import Diary, Trace, signature
from framework.module.graph import Graph, build, read_slot, walk, walk_read
from framework.module.layout import epoch
from framework.module.ownership import OUTSIDE, compiling_scope, note_reads, still_there


@jax.tree_util.register_pytree_node_class
class _Outcome:
    """What a flat program returns: arrays, with the effects of its trace in the aux data.

    JAX keeps the tree structure of outputs per compiled signature, so that each signature has the effects of its own
    trace without a cache of ours.
    """

    __slots__ = ("effects", "values")

    def __init__(self, effects: Effects, values: Sequence[Any]) -> None:
        self.effects, self.values = effects, values

    def tree_flatten(self) -> tuple[Sequence[Any], Effects]:
        return self.values, self.effects

    @classmethod
    def tree_unflatten(cls, effects: Effects, values: Sequence[Any]) -> "_Outcome":
        return cls(effects, values)


class _Program:
    """The compiled form of a function for one structure of objects and static arguments.

    `inner` is the flat traced function, which nested calls bind directly; `outer` wraps it for calls outside of every
    trace, with donation. Wrapping costs no second trace of the user's function: `outer` finds the trace of `inner`.
    """

    def __init__(self, jitted: "Jit", call: Call, graph: Graph, *, nested: bool) -> None:
        # Weak, since modules hold their programs by the compiled function, which could otherwise never be freed.
        self._owner = weakref.ref(jitted)
        self.structure = graph.structure
        self.donated: tuple[int, ...] = ()
        self.kept: tuple[int, ...] = tuple(range(graph.structure.leaf_count))
        self.captures: list[tuple[Any, Any, Any]] = []
        self._nested = nested
        # Only the parts of the call and graph that describe it are kept: their arrays must be free to go.
        self._rebuild = Call(call.treedef, call.roles, [], [], call.statics).rebuild
        self._statics = call.statics
        self.inner = jax.jit(self._run)
        self.outer: Callable[..., _Outcome] | None = None

    def _run(self, leaves: list[Any], arrays: list[Any]) -> _Outcome:
        jitted = self._jitted
        twins = build(self.structure, leaves)
        graph = walk([twins[root] for root in self.structure.roots])
        statics = self._statics
        before = signature(graph, statics, arrays, nested=self._nested)
        jitted.diary.note(before)
        args, kwargs = self._rebuild([twins[root] for root in self.structure.roots], arrays)
        with compiling_scope(constant_captures=jitted.capture == "constant") as reads:
            result = jitted.function(*args, **kwargs)
        self.captures = [read for read in reads if all(read[0] is not twin for twin in twins)]
        effects, values = collect(self.structure, twins, leaves, result, keep_scalars=self._nested)
        if not effects.same_structure:
            graph = walk([twins[root] for root in self.structure.roots])
            jitted.diary.note_end(before, signature(graph, statics, arrays, nested=self._nested))
        return _Outcome(effects, values)

    @property
    def _jitted(self) -> "Jit":
        jitted = self._owner()
        assert jitted is not None  # it is what calls the program
        return jitted

    def is_current(self) -> bool:
        """Tells whether what the trace read by closure is still what is there."""
        return all(still_there(*capture) for capture in self.captures)

    def make_outer(self, leaves: Sequence[Any], arrays: Sequence[Any]) -> Callable[..., _Outcome]:
        """Traces the function to see what it writes, and prepares the program that donates those leaves."""
        shapes: _Outcome = jax.eval_shape(self.inner, list(leaves), list(arrays))
        donated = donatable(shapes.effects, leaves, shapes.values) if self._jitted.donate else ()
        kept = tuple(index for index in range(len(leaves)) if index not in set(donated))

        def flat(given_up: list[Any], rest: list[Any], arrays: list[Any]) -> _Outcome:
            merged: list[Any] = [None] * (len(given_up) + len(rest))
            for index, leaf in zip((*donated, *kept), (*given_up, *rest), strict=True):
                merged[index] = leaf
            outcome = self.inner(merged, arrays)
            effects, extra = return_donated(outcome.effects, donated)
            # Donation was chosen for the first shapes. Where others do not fit, the leaf goes out as it came in.
            idle = set(donated).difference(donatable(effects, merged, outcome.values), extra)
            return _Outcome(effects, [*outcome.values, *(merged[leaf] for leaf in (*extra, *idle))])

        flat.__name__ = flat.__qualname__ = self._jitted.name
        self.donated, self.kept = donated, kept
        return jax.jit(flat, donate_argnums=0)


class _Site:
    """A call with particular objects, prepared: where their leaves are, and the program for their structure."""

    __slots__ = (
        "_donated_keys",
        "_donated_storages",
        "_kept_keys",
        "_kept_storages",
        "_unshared",
        "_versions",
        "_writes",
        "arrays",
        "count",
        "graph",
        "program",
        "roots",
        "simple",
    )

    def __init__(self, program: _Program, graph: Graph, roots: Sequence[Any]) -> None:
        self.program, self.graph, self.roots = program, graph, roots
        self.count = epoch.count
        self._versions = [node._version for node in graph.nodes]
        self.simple = all(slot.inner is None and isinstance(slot.storage, dict) for slot in graph.slots)
        donated = [graph.slots[index] for index in program.donated]
        kept = [graph.slots[index] for index in program.kept]
        self._donated_storages, self._donated_keys = [s.storage for s in donated], [s.key for s in donated]
        self._kept_storages, self._kept_keys = [s.storage for s in kept], [s.key for s in kept]
        self._unshared = [UNSHARED] * len(donated)
        self._writes: dict[Effects, _Writes | None] = {}

    def is_current(self, roots: Sequence[Any]) -> bool:
        """Tells whether the structure of the objects is still what was planned for."""
        if any(first is not second for first, second in zip(roots, self.roots, strict=True)):
            return False
        if self.count != epoch.count:
            # Something changed somewhere; the versions tell cheaply whether it was in one of these objects.
            if [node._version for node in self.graph.nodes] != self._versions:
                return False
            self.count = epoch.count
        return True

    def gather(self) -> tuple[list[Any], list[Any]]:
        """Returns the leaves to donate, none of which anybody else holds, and the others."""
        if not self.simple:
            slots, program = self.graph.slots, self.program
            donated = [read_slot(slots[index]) for index in program.donated]
            kept = [read_slot(slots[index]) for index in program.kept]
            unshare(donated)
            return donated, kept
        donated = list(map(dict.__getitem__, self._donated_storages, self._donated_keys))
        if list(map(sys.getrefcount, donated)) != self._unshared:
            unshare(donated)
        return donated, list(map(dict.__getitem__, self._kept_storages, self._kept_keys))

    def write(self, outcome: _Outcome, donated: list[Any], kept: list[Any]) -> Any:
        """Writes back what the call did, and returns its result in terms of the caller's objects."""
        effects = outcome.effects
        try:
            fast = self._writes[effects]
        except KeyError:
            fast = self._writes[effects] = self._prepare(effects)
        if fast is None:
            leaves: list[Any] = [None] * (len(donated) + len(kept))
            for index, leaf in zip((*self.program.donated, *self.program.kept), (*donated, *kept), strict=True):
                leaves[index] = leaf
            everything = apply(effects, self.graph.nodes, leaves, outcome.values)
        else:
            order, places, containers = fast
            values = outcome.values if order is None else [outcome.values[number] for number in order]
            for (storage, name), value in zip(places, values, strict=False):
                storage[name] = value
            start = len(places)
            for container, names in containers:
                dict.update(container, zip(names, values[start:], strict=False))
                start += len(names)
            everything = self.graph.nodes
        return result_of(effects, everything, outcome.values)

    def _prepare(self, effects: Effects) -> "_Writes | None":
        """Sorts the places that a call writes: plain dicts first, whose assignment is the fastest there is."""
        if not (self.simple and effects.same_structure) or moved_leaves(effects):
            return None
        plain: list[tuple[Any, Any]] = []
        numbers: list[int] = []
        containers: dict[int, tuple[Any, list[Any], list[int]]] = {}
        for index in effects.written:
            slot, source = self.graph.slots[index], effects.leaves[index]
            assert isinstance(source, Output)
            if type(slot.storage) is dict:
                plain.append((slot.storage, slot.key))
                numbers.append(source.value)
            else:
                _, names, sources = containers.setdefault(id(slot.storage), (slot.storage, [], []))
                names.append(slot.key)
                sources.append(source.value)
        for _, _, sources in containers.values():
            numbers += sources
        order = None if numbers == list(range(len(numbers))) else numbers
        return order, plain, [(storage, names) for storage, names, _ in containers.values()]


_SITES = 16
"""How many calls with other objects a first object remembers, for each compiled function."""

_Writes = tuple[list[int] | None, list[tuple[Any, Any]], list[tuple[Any, list[Any]]]]


class Jit:
    """A compiled function; made by `fw.jit`.

    Attributes:
        function: the function that is traced.
        diary: its traces.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        donate: bool,
        capture: Literal["refuse", "constant"],
        nested: Literal["cached", "inline"],
        max_traces: int | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.function, self.donate, self.capture, self.nested = function, donate, capture, nested
        self.diary = Diary(self.name, max_traces)
        self._programs: dict[Any, _Program] = {}
        self._rootless: dict[Any, _Site] = {}

    @property
    def traces(self) -> list[Trace]:
        """The traces so far, each with what was different from the one before."""
        return self.diary.traces

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"fw.jit({self.name}, traces={len(self.traces)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, and writes what it changes to the objects it is passed."""
        if current_trace() != OUTSIDE:
            return self._call_nested(args, kwargs)
        call = take_apart(args, kwargs, static_scalars=False)
        site = self._site(call)
        outer = site.program.outer
        assert outer is not None
        try:
            donated, kept = site.gather()
            outcome = outer(donated, kept, call.arrays)
        except Exception as error:
            lost = explain_lost(error, site.graph, self.name)
            if lost is error:
                raise
            raise lost from error
        return site.write(outcome, donated, kept)

    def _site(self, call: Call) -> _Site:
        """Returns the prepared call for these very objects, making it if they are new or have changed."""
        roots = call.roots
        if not roots:
            sites, name = self._rootless, (call.treedef, call.roles)
        else:
            plans = roots[0]._plans
            if plans is None:
                plans = weakref.WeakKeyDictionary()
                object.__setattr__(roots[0], "_plans", plans)
            sites = plans.get(self)
            if sites is None:
                sites = plans[self] = {}
            name = (call.treedef, call.roles, *map(id, roots[1:]))
        site = sites.get(name)
        if site is not None and site.is_current(roots) and site.program.is_current():
            return site
        graph = walk_read(roots)
        for node in graph.nodes:
            object.__setattr__(node, "_watched", True)
        program = self._program(call, graph, nested=False)
        if program.outer is None:
            program.outer = program.make_outer(graph.gather(), call.arrays)
        if len(sites) >= _SITES:
            del sites[next(iter(sites))]  # a site holds its objects: a new batch object at each step must not stay
        site = sites[name] = _Site(program, graph, roots)
        return site

    def _program(self, call: Call, graph: Graph, *, nested: bool) -> _Program:
        name = (nested, graph.structure, call.treedef, call.roles)
        program = self._programs.get(name)
        if program is None or not program.is_current():
            program = self._programs[name] = _Program(self, call, graph, nested=nested)
        return program

    def _call_nested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function inside of a trace: Python values stay concrete, and an equal call is not traced again."""
        if self.nested == "inline":
            return self.function(*args, **kwargs)
        call = take_apart(args, kwargs, static_scalars=True)
        graph = walk_read(call.roots)
        leaves = graph.gather()
        program = self._program(call, graph, nested=True)
        note_reads(program.captures)
        outcome = program.inner(leaves, call.arrays)
        everything = apply(outcome.effects, graph.nodes, leaves, outcome.values)
        return result_of(outcome.effects, everything, outcome.values)


@overload
def jit(
    function: Callable[..., Any],
    *,
    donate: bool = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
) -> Jit: ...
@overload
def jit(
    *,
    donate: bool = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    donate: bool = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
) -> Any:
    """Compiles a function, method or module; what it changes on the objects it is passed is changed on the caller's.

    Args:
        function: what to compile. A method is compiled once for all instances, with the instance as an argument.
        donate: whether the buffers of leaves that the function overwrites are reused for the new values. An array that
            somebody else still holds is copied first.
        capture: `"refuse"` raises when the function reads an array of an object that it was not passed, `"constant"`
            takes such arrays as constants of the program.
        nested: what a call inside of another trace does: `"cached"` traces equal calls once, `"inline"` runs the body
            in place. The results are the same.
        max_traces: the number of traces after which one more raises, or None for no limit.

    Returns:
        The compiled function; its `traces` tell when and why it was traced.

    Raises:
        LiftError: from a call, if a change could not come out or a captured array would be frozen.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> class Counter(fw.Module):
        ...     count: fw.State
        ...     def __init__(self):
        ...         self.count = jnp.zeros((), jnp.int32)
        ...     @fw.jit
        ...     def __call__(self):
        ...         self.count = self.count + 1
        >>> counter = Counter()
        >>> counter(); counter()
        >>> int(counter.count), len(Counter.__call__.traces)
        (2, 1)
    """
    options: dict[str, Any] = {"donate": donate, "capture": capture, "nested": nested, "max_traces": max_traces}
    if function is None:
        return lambda function: jit(function, **options)
    inner, bound = unbind(function)
    if bound:
        return types.MethodType(_method(inner, options), bound[0])
    if not isinstance(inner, Jit):
        return Jit(inner, **options)
    return inner if options == _DEFAULTS else Jit(inner.function, **_merged(inner, options))


_DEFAULTS: dict[str, Any] = {"donate": True, "capture": "refuse", "nested": "cached", "max_traces": None}


def _merged(jitted: Jit, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a function that is compiled already, with those that are given now in their place."""
    own: dict[str, Any] = {
        "donate": jitted.donate,
        "capture": jitted.capture,
        "nested": jitted.nested,
        "max_traces": jitted.diary.limit,
    }
    return own | {name: value for name, value in options.items() if value != _DEFAULTS[name]}


_methods: "weakref.WeakKeyDictionary[Callable[..., Any], dict[Any, Jit]]" = weakref.WeakKeyDictionary()


def _method(function: Callable[..., Any], options: dict[str, Any]) -> Jit:
    """Returns the one compiled form of a method, so that `fw.jit(a.step)` and `fw.jit(b.step)` share their programs."""
    if isinstance(function, Jit):
        if options == _DEFAULTS:
            return function
        function, options = function.function, _merged(function, options)
    forms = _methods.setdefault(function, {})
    name = tuple(options.items())
    if name not in forms:
        forms[name] = Jit(function, **options)
    return forms[name]
