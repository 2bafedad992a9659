"""The diary of a compiled function: each trace, and what was different from the one before."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from framework.errors import LiftError
from framework.module.graph import Graph, NestRef
from framework.module.hyper import freeze, same
from framework.module.layout import Layout
from framework.module.paths import join, leaf_paths, node_paths


class Change(NamedTuple):
    """One thing that differs between two traces.

    Attributes:
        path: name of the hyperparameter, leaf or argument.
        old: what it was, or `absent`.
        new: what it is, or `absent`.
        line: the user's line that set it, as `train.py:88`; empty where it is not known.
    """

    path: str
    old: Any
    new: Any
    line: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {_text(self.old)} -> {_text(self.new)}{self.line and f' ({self.line})'}"


def _text(value: Any) -> str:
    return value.__name__ if callable(value) and hasattr(value, "__name__") else str(value)


@dataclass(frozen=True)
class Trace:
    """One trace of a function.

    Attributes:
        number: 1 for the first trace.
        changes: what differs from the trace before; empty for the first.
    """

    number: int
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        return f"trace {self.number}: {'; '.join(map(str, self.changes)) or 'first call'}"


class Signature:
    """All that a trace depends on, by name; put into words only when it is compared with another.

    Args:
        graph: the objects of the call.
        leaves: their leaves.
        arguments: static arguments.
        arrays: array arguments.
        nested: whether the call is inside of another trace.
        lines: for each object the user's lines that changed its structure, by attribute.
    """

    def __init__(
        self,
        graph: Graph,
        leaves: Sequence[Any],
        arguments: Sequence[Any],
        arrays: Sequence[Any],
        *,
        nested: bool,
        lines: Sequence[Mapping[Any, str] | None] = (),
    ) -> None:
        self._structure, self._lines = graph.structure, lines
        self._settings = {"called": "inside of a trace" if nested else "outside of a trace", **_settings()}
        self._leaves, self._arrays = list(map(_type, leaves)), list(map(_type, arrays))  # tracers must not stay
        self._arguments = [freeze(argument) for argument in arguments]
        if any(isinstance(ref, NestRef) for _, refs in graph.structure.nodes for ref in refs):
            node_paths(graph, graph.structure.roots)  # which needs the objects, and is remembered

    @functools.cached_property
    def _graph(self) -> Graph:
        return Graph([], [], self._structure)

    @functools.cached_property
    def parts(self) -> dict[str, Any]:
        """A dict from path to hyperparameter, dtype and shape, argument, or setting of JAX."""
        parts: dict[str, Any] = dict(self._settings)
        for index, path in sorted(node_paths(self._graph, self._structure.roots).items()):
            layout: Layout = self._structure.nodes[index][0]
            parts[f"{path or 'object'} (class)"] = layout.cls.__qualname__
            if hasattr(layout.cls, "training"):
                parts[join(path, "training")] = layout.cls.training  # stored only where it is another
            for name, value in layout.statics:
                parts[join(path, str(name))] = value
        for leaf, path in leaf_paths(self._graph, self._structure.roots).items():
            parts[path] = _shape(self._leaves[leaf])
        for index, array in enumerate(self._arrays):
            parts[f"array argument {index}"] = _shape(array)
        for index, argument in enumerate(self._arguments):
            parts[f"static argument {index}"] = argument
        return parts

    @functools.cached_property
    def lines(self) -> dict[str, str]:
        """By path the user's line that set a part; lists and dicts know theirs as a whole."""
        paths = node_paths(self._graph, self._structure.roots)
        return {
            paths[index] if name is None else join(paths[index], str(name)): line
            for index, found in enumerate(self._lines)
            if index in paths
            for name, line in (found or {}).items()
        }


def _settings() -> dict[str, Any]:
    """Returns the settings of JAX that a trace depends on, and the mesh."""
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")
    names += ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_debug_nans", "jax_disable_jit")
    settings = {name: getattr(jax.config, name, None) for name in names}
    mesh = jax.sharding.get_abstract_mesh()
    return settings | {"mesh": "none" if mesh.empty else str(dict(mesh.shape))}


def _type(leaf: Any) -> Any:
    return jax.typeof(leaf) if hasattr(leaf, "dtype") else type(leaf)


def _shape(leaf: Any) -> str:
    if isinstance(leaf, type):
        return leaf.__name__
    dtype = jax.dtypes.canonicalize_dtype(leaf.dtype) if not _is_key(leaf) else leaf.dtype
    weak = " weakly typed" if getattr(leaf, "weak_type", False) else ""
    return f"{dtype}{list(leaf.shape)}{weak}{_placement(leaf)}"


def _placement(leaf: Any) -> str:
    """Names the mesh and partition of an array, where its type says so."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or sharding.mesh.empty:
        return ""
    axes = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
    return f" as {sharding.spec} on mesh ({axes})"


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended)


def differences(before: Signature, after: Signature) -> tuple[Change, ...]:
    """Lists what changed between two traces."""
    old, new = before.parts, after.parts
    found = [
        Change(name, old.get(name, "absent"), new.get(name, "absent"), _line(name, before, after))
        for name in {**old, **new}
        if name not in old or name not in new or not same(old[name], new[name])
    ]
    return tuple(found) or (Change("JAX configuration or captured value", "one", "another"),)


def _line(name: str, before: Signature, after: Signature) -> str:
    """Finds the line that set a part; one that came or went may have done so with an object around it."""
    path = name.removesuffix(" (class)")
    moved = (name in before.parts) != (name in after.parts)
    while path:
        for lines in (after.lines, before.lines):
            if path in lines:
                return lines[path]
        path = path.rpartition(".")[0] if moved else ""
    return ""


class Diary:
    """The traces of one compiled function, and its budget.

    Attributes:
        traces: the traces so far.
        limit: the number of traces after which one more is an error, or None.
    """

    def __init__(self, name: str, limit: int | None) -> None:
        self.traces: list[Trace] = []
        self.limit = limit
        self._name = name
        self._last: Signature | None = None
        self._changed: list[set[str]] = []

    def note(self, current: Signature) -> None:
        """Writes down a trace that is about to happen.

        Raises:
            LiftError: if it exceeds the budget, or a hyperparameter has changed at each of the last calls.
        """
        changes = () if self._last is None else differences(self._last, current)
        self._last = current
        trace = Trace(len(self.traces) + 1, changes)
        self.traces.append(trace)
        self._changed.append(set())
        if self.limit is not None and trace.number > self.limit:
            raise LiftError(
                f"{self._name} was traced {trace.number} times, and max_traces={self.limit}. "
                f"The last change was: {'; '.join(map(str, changes))}."
            )
        self._check_counter()

    def note_end(self, before: Signature, after: Signature) -> None:
        """Writes down what the function itself changed in the trace that was noted last."""
        self._changed[-1] = {change.path for change in differences(before, after)}

    def _check_counter(self) -> None:
        """Refuses a number that the function changes in each trace: it would compile at every step, for ever.

        A number that the caller sets, and one that differs between objects, is as many programs as it has values.
        """
        if len(self.traces) < 4:
            return
        recent = [{change.path: change for change in trace.changes} for trace in self.traces[-3:]]
        for path in recent[0].keys() & set[str].intersection(*self._changed[-4:-1]):
            values = [changes[path].new for changes in recent if path in changes]
            if len(values) == 3 and all(map(_is_number, values)) and len(set(values)) == 3:
                raise LiftError(
                    f"the hyperparameter {path} of {self._name} was different at each of the last traces "
                    f"({', '.join(map(str, values))}), so that every call compiles anew. A number that changes with the "
                    f"steps is state: make it a State, with `{path.split('.')[-1]}: fw.State` in the class body."
                )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
