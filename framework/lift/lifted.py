"""A call whose objects are taken out of its arguments: what every transformation begins and ends with."""

from collections.abc import Callable, Sequence
from typing import Any

from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output, apply, collect, result_of
from framework.lift.plan import take_apart
from framework.module.graph import build, walk_read
from framework.module.hyper import same
from framework.module.paths import join, leaf_paths, node_paths


class Lifted:
    """The objects, leaves and arrays of one call.

    Attributes:
        call: the arguments, taken apart.
        graph: the objects among them.
        leaves: the leaves of the objects, in order.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, static_scalars: bool) -> None:
        self.call = take_apart(args, kwargs or {}, static_scalars=static_scalars)
        self.graph = walk_read(self.call.roots)
        self.leaves = self.graph.gather()

    def run(
        self, function: Callable[..., Any], leaves: Sequence[Any], arrays: Sequence[Any]
    ) -> tuple[Effects, list[Any]]:
        """Runs a function on twins made of other leaves and arrays, inside of the transformation.

        Args:
            function: what to run.
            leaves: one value for each leaf.
            arrays: one value for each array argument.

        Returns:
            What the function did, and its output values.
        """
        twins = build(self.graph.structure, leaves)
        args, kwargs = self.call.rebuild(twins, arrays)
        result = function(*args, **kwargs)
        return collect(self.graph.structure, twins, leaves, result, keep_scalars=True)

    def finish(self, effects: Effects, values: Sequence[Any]) -> Any:
        """Writes back what the function did, and returns its result in terms of the caller's objects."""
        everything = apply(effects, self.graph.nodes, self.leaves, values)
        return result_of(effects, everything, values)

    def path(self, leaf: int) -> str:
        """Names a leaf for an error text, as in `Encoder.blocks.3.weight`."""
        return leaf_name(self, leaf)


def leaf_name(lifted: Lifted, leaf: int) -> str:
    """Returns the class of the root and the path of a leaf."""
    for root in lifted.graph.structure.roots:
        paths = leaf_paths(lifted.graph, (root,))
        if leaf in paths:
            return join(type(lifted.graph.nodes[root]).__name__, paths[leaf])
    return "a leaf"


def structure_changes(lifted: Lifted, effects: Effects) -> list[str]:
    """Lists hyperparameters and attributes that a call changed, as `path: old -> new`."""
    found: list[str] = []
    names: dict[int, str] = {}
    for root in lifted.graph.structure.roots:
        prefix = type(lifted.graph.nodes[root]).__name__
        for index, path in node_paths(lifted.graph, (root,)).items():
            names.setdefault(index, join(prefix, path))
    pairs = zip(effects.before.nodes, effects.after.nodes, strict=False)
    for index, ((old, old_refs), (new, new_refs)) in enumerate(pairs):
        if old is new and old_refs == new_refs:
            continue
        before, after = dict(old.statics), dict(new.statics)
        before |= dict.fromkeys(old.dynamic, "array or module")
        after |= dict.fromkeys(new.dynamic, "array or module")
        changes = [
            f"{join(names.get(index, 'object'), str(name))}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
            for name in {**before, **after}
            if name not in before or name not in after or not same(before[name], after[name])
        ]
        found += changes or [f"{names.get(index, 'object')}: another object, or another order of its attributes"]
    return found


def require_same_structure(lifted: Lifted, effects: Effects, name: str) -> None:
    """Refuses changes of structure where the transformation has no place for them.

    Args:
        lifted: the call.
        effects: what it did.
        name: the transformation.

    Raises:
        LiftError: if a hyperparameter or attribute changed, or an object was created and kept.
    """
    if effects.same_structure:
        return
    changes = structure_changes(lifted, effects) or ["a new object was returned"]
    raise LiftError(
        f"fw.{name}: the function changed the structure of an object ({'; '.join(changes)}). The same code runs many times "
        f"here, so hyperparameters and attributes must stay as they are. Make a number that changes a State, or make the "
        f"change before the call, for example by calling the function once outside (lazy initialisation)."
    )


def require_same_types(
    lifted: Lifted, effects: Effects, leaves: Sequence[Any], values: Sequence[Any], name: str
) -> None:
    """Refuses a written leaf whose shape or dtype differs from what it was.

    Args:
        lifted: the call.
        effects: what it did.
        leaves: the leaves before.
        values: the output values.
        name: the transformation.

    Raises:
        LiftError: if a leaf has another shape or dtype.
    """
    for leaf in effects.written:
        source = effects.leaves[leaf]
        assert isinstance(source, Output)
        old, new = leaves[leaf], values[source.value]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise LiftError(
                f"fw.{name}: {lifted.path(leaf)} became {new.dtype}{list(new.shape)}, and it was "
                f"{old.dtype}{list(old.shape)}. What a loop carries keeps its shape and dtype; convert the new value, as "
                f"in `self.total = (self.total + x).astype(self.total.dtype)`."
            )


def moved_leaves(effects: Effects) -> bool:
    """Tells whether a leaf that was not written sits in another slot than before."""
    return any(isinstance(source, Input) and source.leaf != leaf for leaf, source in enumerate(effects.leaves))
