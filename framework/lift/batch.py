"""`vmap` over functions that read and change objects."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output, changed_leaves, own_slots
from framework.lift.lifted import Lifted
from framework.lift.plan import ARRAY, spread, unbind
from framework.module.fields import KeyKind
from framework.module.graph import LeafRef, NestRef, NodeRef, Structure, walk
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
    object per element, stacked along the first axis of its leaves; what is written to them is written back stacked. An
    object that the function makes and returns comes back as one, with stacked leaves. Hyperparameters and attributes may
    change, as the function is traced once for all elements.

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
        LiftError: from the returned function, if elements would write different values to one leaf.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> layer = fw.nn.Linear(2, 1, rngs=fw.Rngs(0))
        >>> fw.vmap(layer)(jnp.ones((5, 2))).shape
        (5, 1)
        >>> layers = fw.vmap(lambda rngs: fw.nn.Linear(2, 1, rngs=rngs))(fw.Rngs(0).fork(3))
        >>> layers.weight.shape
        (3, 2, 1)
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


def _is_axis(part: Any) -> bool:
    return isinstance(part, int)


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
        self.own: dict[int, int] = {}

    def _assign(self, argument_axes: list[Any], selected: Mapping[Any, Axis]) -> None:
        call, graph = self.lifted.call, self.lifted.graph
        positional, keyword = call.treedef.children()
        flat: list[Any] = []
        for axis, child in zip(argument_axes, positional.children(), strict=True):
            flat += spread(axis, child, _is_axis)
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
        self.node_axes = [owner.get(id(node)) for node in graph.nodes]

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

    def _run(self, leaves: list[Any], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the leaves that are another array than before or new, and the returned arrays."""
        effects, values = self.lifted.run(self.function, leaves, arrays)
        if any(isinstance(part, NodeRef) and part.node < len(effects.before.nodes) for part in effects.returned):
            raise LiftError(
                "fw.vmap: an object that was passed was returned; return its arrays, or change it in place. An object that "
                "is made inside may be returned: its leaves come back stacked."
            )
        self.effects, self.own = effects, own_slots(effects.before, effects.after)

        def value(source: Input | Output) -> Any:
            return leaves[source.leaf] if isinstance(source, Input) else values[source.value]

        changed = [value(effects.leaves[leaf]) for leaf in self._changed()]
        return changed, [values[part.value] for part in effects.returned if isinstance(part, Output)]

    def _changed(self) -> list[int]:
        """Lists the leaves after the call that are not what was in their place before."""
        assert self.effects is not None
        return changed_leaves(self.effects, self.own)

    def call(self, out_axes: Any, axis_name: str | None) -> Any:
        """Runs the mapped function and writes back what it changed."""
        in_axes = (self.leaf_axes, self.array_axes)
        options: dict[str, Any] = {"in_axes": in_axes, "axis_size": self.size, "axis_name": axis_name}
        arguments = self.leaves, self.lifted.call.arrays
        jax.eval_shape(jax.vmap(self._run, out_axes=0, **options), *arguments)
        assert self.effects is not None
        seeded = [self.own[leaf] for leaf in self._changed() if self.own.get(leaf) in self.keys]
        if seeded:
            raise LiftError(
                f"fw.vmap: {self.lifted.path(seeded[0])}, the key of a shared stream, was replaced by elements."
            )
        axes = self._changed_axes()
        self._check_shared(axes, options, arguments)
        changed, returned = jax.vmap(self._run, out_axes=(axes, self._result_axes(out_axes)), **options)(*arguments)
        return self.lifted.finish(*self._joined(self.effects, changed, returned))

    def _changed_axes(self) -> list[Axis]:
        """Returns the axis of each changed leaf: that of its place, or of the object that it is new in."""
        assert self.effects is not None
        places = _places(self.effects.after)
        nodes: dict[int, Axis] = dict(enumerate(self.node_axes))
        for number, (_, refs) in enumerate(self.effects.after.nodes):
            for ref in refs:
                for inner in ref.children if isinstance(ref, NestRef) else (ref,):
                    if isinstance(inner, NodeRef):  # an object that is made inside is like the one it is put in
                        nodes.setdefault(inner.node, nodes.get(number, 0))
        return [
            self.leaf_axes[self.own[leaf]] if leaf in self.own else nodes.get(places[leaf][0], 0)
            for leaf in self._changed()
        ]

    def _result_axes(self, out_axes: Any) -> list[Axis]:
        """Returns the axis of each returned array."""
        assert self.effects is not None
        treedef = self.effects.treedef
        flat = spread(out_axes, treedef, _is_axis)
        return [axis for axis, part in zip(flat, self.effects.returned, strict=True) if isinstance(part, Output)]

    def _joined(self, effects: Effects, changed: list[Any], returned: list[Any]) -> tuple[Effects, list[Any]]:
        """Describes the mapped call: as the call of one element, with output values that are stacked."""
        numbers = {leaf: Output(index) for index, leaf in enumerate(self._changed())}
        sources = tuple(numbers.get(leaf, source) for leaf, source in enumerate(effects.leaves))
        rest = iter(range(len(changed), len(changed) + len(returned)))
        parts = tuple(Output(next(rest)) if isinstance(part, Output) else part for part in effects.returned)
        values = [*changed, *returned]
        return replace(effects, leaves=sources, returned=parts, output_count=len(values)), values

    def _check_shared(self, axes: Sequence[Axis], options: dict[str, Any], arguments: tuple[Any, Any]) -> None:
        """Refuses different values for one leaf, naming the leaf, before JAX does so without its name."""
        assert self.effects is not None
        for index, (leaf, axis) in enumerate(zip(self._changed(), axes, strict=True)):
            if axis is not None:
                continue
            try:
                only = jax.vmap(lambda *a, index=index: self._run(*a)[0][index], out_axes=None, **options)
                jax.eval_shape(only, *arguments)
            except ValueError as error:
                node, name = _places(self.effects.after)[leaf]
                place = self.lifted.path(self.own[leaf]) if leaf in self.own else self._new_path(node, name)
                raise LiftError(
                    f"fw.vmap: {place} was written with a value that is another one for each element, and "
                    f"it is one array for all. Reduce the value over the axis (`jax.lax.pmean(x, axis_name)` with "
                    f"`axis_name=`), or keep one for each element with `axes={{{str(name)!r}: 0}}` and a "
                    f"stacked array."
                ) from error

    def _new_path(self, node: int, name: Any) -> str:
        assert self.effects is not None
        return f"{self.effects.after.nodes[node][0].cls.__name__}.{name}"


def _places(structure: Structure) -> dict[int, tuple[int, Any]]:
    """Maps leaf number to the number of the object that it is in, and its name there."""
    found: dict[int, tuple[int, Any]] = {}
    for number, (layout, refs) in enumerate(structure.nodes):
        for name, ref in zip(layout.dynamic, refs, strict=True):
            for inner in ref.children if isinstance(ref, NestRef) else (ref,):
                if isinstance(inner, LeafRef):
                    found[inner.leaf] = number, name
    return found
