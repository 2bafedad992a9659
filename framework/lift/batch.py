"""`vmap` over functions that read and change objects."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output, Static
from framework.lift.lifted import Lifted, moved_leaves, require_same_structure
from framework.lift.plan import ARRAY, unbind
from framework.module.fields import KeyKind
from framework.module.graph import walk
from framework.module.paths import leaf_paths, matches

Axis = int | None


def vmap(
    function: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    *,
    axes: Mapping[Any, Axis] | None = None,
    axis_name: str | None = None,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """Makes a function that runs over an axis of its arrays and objects at once.

    An object with axis `None` is one object for all elements: it may be read, and written only with values that do not
    depend on the element. Its random streams give each element draws of its own. An object with axis `0` stands for one
    object per element, stacked along the first axis of its leaves; what is written to them is written back stacked.

    Args:
        function: a function, method or module.
        in_axes: axis of each argument, or one for all; the object of a method is not counted and has axis None.
        out_axes: axis of the results, see `jax.vmap`.
        axes: axis by leaf selector (a kind or path pattern, see `fw.select`), before the axis of the argument.
        axis_name: name of the axis for collectives such as `jax.lax.pmean`.
        axis_size: length of the axis, where no argument has it.

    Returns:
        A function with the arguments of `function`.

    Raises:
        LiftError: from the returned function, if elements would write different values to one leaf, or change the
            structure of an object.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> layer = fw.nn.Linear(2, 1, rngs=fw.Rngs(0))
        >>> fw.vmap(layer)(jnp.ones((5, 2))).shape
        (5, 1)
    """
    inner, bound = unbind(function)

    @functools.wraps(inner)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        lifted = Lifted((*bound, *args), kwargs, static_scalars=False)
        batching = _Batching(lifted, inner, _argument_axes(in_axes, len(bound), args), axes or {}, axis_size)
        return batching.call(out_axes, axis_name)

    return mapped


def _argument_axes(in_axes: Any, bound: int, args: tuple[Any, ...]) -> list[Any]:
    if isinstance(in_axes, int) or in_axes is None:
        return [None] * bound + [in_axes] * len(args)
    if len(in_axes) != len(args):
        raise LiftError(f"fw.vmap: in_axes has {len(in_axes)} entries for {len(args)} arguments; give one for each.")
    return [None] * bound + list(in_axes)


class _Batching:
    """One call of a mapped function: the axis of every leaf and array, and how results come back."""

    def __init__(
        self,
        lifted: Lifted,
        function: Callable[..., Any],
        argument_axes: list[Any],
        selected: Mapping[Any, Axis],
        axis_size: int | None,
    ) -> None:
        self.lifted, self.function = lifted, function
        self.array_axes: list[Axis] = []
        self.leaf_axes: list[Axis] = [None] * len(lifted.leaves)
        self._assign(argument_axes, selected)
        self.size = self._find_size(axis_size)
        self.leaves = list(lifted.leaves)
        self.keys = [
            leaf
            for leaf, slot in enumerate(lifted.graph.slots)
            if slot.kind is not None and issubclass(slot.kind, KeyKind) and self.leaf_axes[leaf] is None
        ]
        for leaf in self.keys:  # each element draws from a stream of its own
            self.leaves[leaf] = jax.vmap(jax.random.fold_in, (None, 0))(lifted.leaves[leaf], jnp.arange(self.size))
            self.leaf_axes[leaf] = 0
        self.effects: Effects | None = None

    def _assign(self, argument_axes: list[Any], selected: Mapping[Any, Axis]) -> None:
        call, graph = self.lifted.call, self.lifted.graph
        positional, keyword = call.treedef.children()
        flat: list[Any] = []
        for axis, child in zip(argument_axes, positional.children(), strict=True):
            skeleton = jax.tree.unflatten(child, [0] * child.num_leaves)
            full = jax.tree.broadcast(axis, skeleton, is_leaf=lambda part: part is None)
            flat += jax.tree.leaves(full, is_leaf=lambda part: part is None)
        flat += [0] * keyword.num_leaves
        owner: dict[int, Axis] = {}
        for role, axis in zip(call.roles, flat, strict=True):
            if role is ARRAY:
                self.array_axes.append(axis)
            elif role.name == "object":
                for node in walk([call.roots[role.root]]).nodes:
                    if owner.setdefault(id(node), axis) != axis:
                        raise LiftError(
                            f"fw.vmap: a {type(node).__name__} is shared by arguments with axes {owner[id(node)]} and "
                            f"{axis}; give both arguments one axis, or pass a clone."
                        )
        roots = list(graph.structure.roots)
        paths: dict[int, str] = {}
        for root in roots:
            for leaf, path in leaf_paths(graph, (root,)).items():
                paths.setdefault(leaf, path)
        for leaf, slot in enumerate(graph.slots):
            chosen = [axis for selector, axis in selected.items() if matches(selector, paths[leaf], slot.kind)]
            self.leaf_axes[leaf] = chosen[0] if chosen else owner.get(id(graph.nodes[slot.node]))

    def _find_size(self, axis_size: int | None) -> int:
        values = [*zip(self.lifted.leaves, self.leaf_axes, strict=True)]
        values += zip(self.lifted.call.arrays, self.array_axes, strict=True)
        sizes = {jnp.shape(value)[axis] for value, axis in values if axis is not None and jnp.ndim(value) > 0}
        if axis_size is not None:
            sizes.add(axis_size)
        if len(sizes) != 1:
            found = f"the sizes {sorted(sizes)}" if sizes else "no array with an axis to map over"
            raise LiftError(f"fw.vmap: the arguments have {found}; map arrays of one size, or give `axis_size=`.")
        return sizes.pop()

    def _run(self, leaves: list[Any], arrays: list[Any]) -> tuple[list[Any], Any]:
        """Returns the written leaves, and the returned value with objects refused."""
        effects, values = self.lifted.run(self.function, leaves, arrays)
        require_same_structure(self.lifted, effects, "vmap")
        if moved_leaves(effects):
            raise LiftError("fw.vmap: an array was moved from one attribute to another; write a copy, `jnp.copy(x)`.")
        self.effects = effects
        written = [values[effects.leaves[leaf].value] for leaf in effects.written]  # pyright: ignore[reportAttributeAccessIssue]
        parts: list[Any] = []
        for part in effects.returned:
            if not isinstance(part, Output | Static):
                raise LiftError("fw.vmap: an object was returned; return its arrays, or change an argument in place.")
            parts.append(values[part.value] if isinstance(part, Output) else part.value)
        return written, jax.tree.unflatten(effects.treedef, parts)

    def call(self, out_axes: Any, axis_name: str | None) -> Any:
        """Runs the mapped function and writes back what it changed."""
        in_axes = (self.leaf_axes, self.array_axes)
        options: dict[str, Any] = {"in_axes": in_axes, "axis_size": self.size, "axis_name": axis_name}
        arguments = self.leaves, self.lifted.call.arrays
        jax.eval_shape(jax.vmap(lambda *a: self._run(*a)[0], out_axes=0, **options), *arguments)
        assert self.effects is not None
        written = self.effects.written
        seeded = [leaf for leaf in written if leaf in self.keys]
        if seeded:
            raise LiftError(
                f"fw.vmap: {self.lifted.path(seeded[0])}, the key of a shared stream, was replaced by elements."
            )
        axes = [self.leaf_axes[leaf] for leaf in written]
        self._check_shared(axes, options, arguments)
        values, result = jax.vmap(self._run, out_axes=(axes, out_axes), **options)(*arguments)
        effects = self.effects
        numbers = {leaf: Output(index) for index, leaf in enumerate(written)}
        sources = tuple(numbers.get(leaf, Input(leaf)) for leaf in range(len(self.leaves)))
        structure = effects.before
        empty = jax.tree.structure(None)
        self.lifted.finish(Effects(structure, structure, sources, empty, (), len(values)), values)
        return result

    def _check_shared(self, axes: Sequence[Axis], options: dict[str, Any], arguments: tuple[Any, Any]) -> None:
        """Refuses different values for one leaf, naming the leaf, before JAX does so without its name."""
        assert self.effects is not None
        for index, (leaf, axis) in enumerate(zip(self.effects.written, axes, strict=True)):
            if axis is not None:
                continue
            try:
                only = jax.vmap(lambda *a, index=index: self._run(*a)[0][index], out_axes=None, **options)
                jax.eval_shape(only, *arguments)
            except ValueError as error:
                raise LiftError(
                    f"fw.vmap: {self.lifted.path(leaf)} was written with a value that is another one for each element, and "
                    f"it is one array for all. Reduce the value over the axis (`jax.lax.pmean(x, axis_name)` with "
                    f"`axis_name=`), or keep one for each element with `axes={{{self._pattern(leaf)!r}: 0}}` and a "
                    f"stacked array."
                ) from error

    def _pattern(self, leaf: int) -> str:
        return str(self.lifted.graph.slots[leaf].key)
