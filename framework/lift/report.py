"""`effects`: what a function would do to the objects it is passed, by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from framework.lift.effects import Effects, Input
from framework.lift.lifted import Lifted
from framework.lift.plan import unbind
from framework.module.graph import Graph
from framework.module.hyper import same
from framework.module.layout import Layout
from framework.module.paths import join, leaf_paths, node_paths


@dataclass(frozen=True)
class Report:
    """What a call changes on its objects. With several objects, a name begins with the position of its object.

    Attributes:
        writes: leaves that get another array.
        creates: attributes, items and leaves that are new.
        removes: attributes, items and leaves that are gone.
        hyperparameters: for each changed hyperparameter its old and its new value.
        donates: leaves whose buffers a compiled call reuses.
    """

    writes: tuple[str, ...]
    creates: tuple[str, ...]
    removes: tuple[str, ...]
    hyperparameters: dict[str, tuple[Any, Any]]
    donates: tuple[str, ...] = ()

    @property
    def pure(self) -> bool:
        """Whether nothing is changed."""
        return not (self.writes or self.creates or self.removes or self.hyperparameters)


def effects(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Finds out what a function would change on the objects it is passed, without running it.

    Args:
        function: a function, method or module.
        args: arguments of the function; leaves and arrays may be `jax.ShapeDtypeStruct`.
        kwargs: keyword arguments.

    Returns:
        The changes by name.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> model = fw.nn.BatchNorm(3)
        >>> fw.effects(model, jnp.ones((2, 3))).writes
        ('mean', 'variance')
        >>> with model.eval():
        ...     fw.effects(model, jnp.ones((2, 3))).pure
        True
    """
    inner, bound = unbind(function)
    lifted = Lifted((*bound, *args), kwargs, static_scalars=True)
    found: list[Effects] = []

    def run(leaves: list[Any], arrays: list[Any]) -> None:
        found.append(lifted.run(inner, leaves, arrays)[0])

    jax.eval_shape(run, lifted.leaves, lifted.call.arrays)
    return report(found[-1], lifted.graph)


def report(found: Effects, graph: Graph, *, donated: Sequence[int] = ()) -> Report:
    """Describes effects by name.

    Args:
        found: the effects of a call.
        graph: the objects of the call.
        donated: numbers of the leaves that are donated.

    Returns:
        The changes by name.
    """
    names, leaves = (paths(graph, graph.structure.roots) for paths in (node_paths, leaf_paths))
    writes: list[str] = []
    creates: list[str] = []
    removes: list[str] = []
    changed: dict[str, tuple[Any, Any]] = {}
    for node, ((old, old_refs), (new, new_refs)) in enumerate(zip(found.before.nodes, found.after.nodes, strict=False)):
        was, now = _content(old, old_refs), _content(new, new_refs)
        for attribute in {**was, **now}:
            name = join(names.get(node, "object"), str(attribute))
            if attribute not in was:
                creates.append(name)
            elif attribute not in now:
                removes.append(name)
            elif isinstance(was[attribute], _Ref) != isinstance(now[attribute], _Ref):
                creates.append(name) if isinstance(now[attribute], _Ref) else removes.append(name)
            elif not isinstance(was[attribute], _Ref):
                if not same(was[attribute], now[attribute]):
                    changed[name] = was[attribute], now[attribute]
            elif not _kept(was[attribute].value, now[attribute].value, found):
                writes.append(name)
    return Report(
        tuple(writes),
        tuple(creates),
        tuple(removes),
        changed,
        tuple(leaves[leaf] for leaf in donated if leaf in leaves),
    )


@dataclass(frozen=True)
class _Ref:
    value: Any


def _content(layout: Layout, refs: Sequence[Any]) -> dict[Any, Any]:
    children = {name: _Ref(ref) for name, ref in zip(layout.dynamic, refs, strict=True)}
    return dict(layout.statics) | children


def _kept(old: Any, new: Any, found: Effects) -> bool:
    if type(old) is not type(new):
        return False
    if hasattr(old, "leaf"):
        return found.leaves[new.leaf] == Input(old.leaf)
    if hasattr(old, "children"):
        pairs = zip(old.children, new.children, strict=False)
        return old.treedef == new.treedef and all(_kept(*pair, found) for pair in pairs)
    return old == new
