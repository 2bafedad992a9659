"""`jit`: compiles a function that mutates the objects it is passed."""

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import jax.numpy as jnp

from framework._compat import current_trace
from framework.lift.donation import explain_lost
from framework.lift.effects import apply, result_of
from framework.lift.fixpoint import Initialisation, find_initialisation
from framework.lift.lookup import Family, Recent
from framework.lift.plan import Call, fix_arguments, take_apart, unbind
from framework.lift.program import Options, Program, Source
from framework.lift.retrace import Trace
from framework.lift.sharding import Shardings
from framework.lift.site import Site
from framework.lift.stages import Lowered, Traced
from framework.module.graph import Graph, walk_read
from framework.module.hyper import freeze, key
from framework.module.ownership import OUTSIDE, note_reads

_FAMILIES = 16
"""How many calls with other objects a first object remembers, for each compiled function."""


class Jit:
    """A compiled function; made by `fw.jit`.

    Attributes:
        function: the function that is traced.
        options: how it is compiled.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options = function, options
        self._source = Source(function, options)
        self._diary = self._source.diary
        self._fix = fix_arguments(function, options.static_argnums, options.static_argnames)
        self._programs: dict[Any, Program] = {}
        self._rootless: dict[Any, Family] = {}
        self._recent: Recent | None = None

    @property
    def traces(self) -> list[Trace]:
        """The traces so far, each with what was different from the one before."""
        return self._diary.traces

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"fw.jit({self._source.name}, traces={len(self.traces)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, and writes what it changes to the objects it is passed."""
        if self._fix is not None:
            args, kwargs = self._fix(args, kwargs)
        if current_trace() != OUTSIDE:
            return self._call_nested(args, kwargs)
        recent = self._recent
        arrays = None if recent is None or kwargs else recent.same(args)
        if arrays is None:
            call = take_apart(args, kwargs, static_scalars=False)
            site, arrays = self._site(call), call.arrays
            self._recent = Recent.of(args, site) if not (kwargs or call.statics) else None
        else:
            assert recent is not None
            site = recent.site
        try:
            donated, kept = site.gather()
            outcome = site.program.outer(donated, kept, arrays)
        except Exception as error:
            lost = explain_lost(error, site.graph(), self._source.name)
            if lost is error:
                raise
            raise lost from error
        return site.write(outcome, donated, kept)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Traces the function for some arguments, without running it; see `Traced`.

        Args:
            args: arguments as of a call; leaves and arrays may be `jax.ShapeDtypeStruct`.
            kwargs: keyword arguments.

        Example:
            >>> import jax.numpy as jnp
            >>> import framework as fw
            >>> traced = fw.jit(lambda tracker, x: tracker.update(x)).trace(fw.trackers.Sum(), jnp.ones(3))
            >>> traced.effects.writes
            ('total',)
        """
        if self._fix is not None:
            args, kwargs = self._fix(args, kwargs)
        call = take_apart(args, kwargs, static_scalars=False)
        return Traced(self, self._site(call), call)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Lowers the function for some arguments, without running it; see `Lowered`.

        Args:
            args: as for `trace`.
            kwargs: keyword arguments.

        Example:
            >>> import jax.numpy as jnp
            >>> import framework as fw
            >>> tracker = fw.trackers.Sum()
            >>> update = fw.jit(lambda tracker, x: tracker.update(x)).lower(tracker, jnp.ones(3)).compile()
            >>> update(tracker, jnp.ones(3))
            >>> float(tracker.compute())
            3.0
        """
        return self.trace(*args, **kwargs).lower()

    def _site(self, call: Call) -> Site:
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
        family = sites.get(name)
        if family is None:
            if len(sites) >= _FAMILIES:
                del sites[next(iter(sites))]  # a new batch object at each step must not stay
            family = sites[name] = Family()
        found = family.find(roots)
        if isinstance(found, Site):
            return found
        graph = walk_read(roots) if found is None else found
        for node in graph.nodes:
            object.__setattr__(node, "_watched", True)
        if self.options.in_shardings is not None:
            Shardings(self.options.in_shardings, None, call, graph).place_leaves(graph)
        program = self._prepared(call, graph)
        if program.created and (made := self._initialisation(program, call, graph)) is not None:
            made.run(graph, call.arrays)
            graph = walk_read(roots)
            program = self._prepared(call, graph)
        site = Site(program, graph, roots)
        family.add(site, same_objects=graph is found)
        return site

    def _prepared(self, call: Call, graph: Graph) -> Program:
        program = self._program(call, graph, nested=False)
        if program.outer is None:
            program.prepare(graph, call.arrays)
        return program

    def _initialisation(self, program: Program, call: Call, graph: Graph) -> Initialisation | None:
        """Returns the program that makes the leaves which this first call makes, if the call can be split."""
        if self.options.capture != "refuse":
            return None
        name = tuple((jnp.shape(value), jnp.result_type(value)) for value in (*graph.gather(), *call.arrays))
        if name not in program.initialisations:
            program.initialisations[name] = find_initialisation(program, graph, call, self._prepared)
        return program.initialisations[name]

    def _program(self, call: Call, graph: Graph, *, nested: bool) -> Program:
        name = (nested, graph.structure, call.treedef, call.roles)
        program = self._programs.get(name)
        if program is None or not program.is_current():
            program = self._programs[name] = Program(self._source, call, graph, nested=nested)
        return program

    def _call_nested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function inside of a trace: Python values stay concrete, and an equal call is not traced again."""
        call = take_apart(args, kwargs, static_scalars=True)
        if self.options.nested == "inline":
            args, kwargs = call.rebuild(call.roots, call.arrays)
            return self.function(*args, **kwargs)
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
    donate: bool | Literal["strict"] = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Jit: ...
@overload
def jit(
    *,
    donate: bool | Literal["strict"] = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Callable[[Callable[..., Any]], Jit]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    donate: bool | Literal["strict"] = True,
    capture: Literal["refuse", "constant"] = "refuse",
    nested: Literal["cached", "inline"] = "cached",
    max_traces: int | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    in_shardings: Any = None,
    out_shardings: Any = None,
) -> Any:
    """Compiles a function, method or module; what it changes on the objects it is passed is changed on the caller's.

    Args:
        function: what to compile. A method is compiled once for all instances, with the instance as an argument.
        donate: whether the buffers of leaves that the function overwrites are reused for the new values. An array that
            somebody else still holds is copied first. With `"strict"` that is refused, and so is a written leaf whose
            buffer cannot be reused.
        capture: `"refuse"` raises when the function reads an array of an object that it was not passed, `"constant"`
            takes such arrays as constants of the program.
        nested: what a call inside of another trace does: `"cached"` traces equal calls once, `"inline"` runs the body
            in place. The results are the same.
        max_traces: the number of traces after which one more raises, or None for no limit.
        static_argnums: positions of arguments that are static: numbers in them stay Python numbers, and each value is a
            program of its own. Text, functions and other values that are no arrays are static anyway.
        static_argnames: names of such arguments.
        in_shardings: where arguments are put before the function runs: a sharding for all, or one entry for each
            positional argument: None, a sharding, a pytree prefix, or for an object a dict from leaf selector (see
            `fw.select`) to sharding. A leaf that is written stays where it was put.
        out_shardings: where the result is put: a sharding, or a pytree prefix of the result.

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
    options: dict[str, Any] = {
        "donate": donate,
        "capture": capture,
        "nested": nested,
        "max_traces": max_traces,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
    }
    if function is None:
        return lambda function: jit(function, **options)
    inner, bound = unbind(function)
    if bound:
        return types.MethodType(_method(inner, options), bound[0])
    return _compiled(inner, options)


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Jit:
    """Compiles a function, or one that is compiled already with the options that are given now in place of its own."""
    if not isinstance(function, Jit):
        return Jit(function, Options(**options))
    default = Options()
    given = {name: value for name, value in options.items() if value != getattr(default, name)}
    return Jit(function.function, dataclasses.replace(function.options, **given)) if given else function


_methods: "weakref.WeakKeyDictionary[Callable[..., Any], dict[Any, Jit]]" = weakref.WeakKeyDictionary()


def _method(function: Callable[..., Any], options: dict[str, Any]) -> Jit:
    """Returns the one compiled form of a method, so that `fw.jit(a.step)` and `fw.jit(b.step)` share their programs."""
    forms = _methods.setdefault(function, {})
    name = key(freeze(options))
    if name not in forms:
        forms[name] = _compiled(function, options)
    return forms[name]
