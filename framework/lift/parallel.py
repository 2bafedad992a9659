"""`shard_map` over functions that read and change objects: each device runs the function on its part of the arrays."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from framework._compat import varying_axes
from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output, Static, changed_leaves, own_slots
from framework.lift.lifted import Lifted
from framework.lift.plan import ARRAY, spread, unbind
from framework.module.paths import leaf_paths, matches

Specs = PartitionSpec | Mapping[Any, PartitionSpec] | Any


def shard_map(
    function: Callable[..., Any],
    *,
    mesh: Mesh | None = None,
    in_specs: Any,
    out_specs: Any,
    axis_names: set[str] | frozenset[str] = frozenset(),
) -> Callable[..., Any]:
    """Makes a function that every device runs on its part of the arrays and of the objects' leaves.

    A leaf that is written keeps the partition it came with: one that is the same on all devices (`P()`) must be written
    with a value that is, for example after `jax.lax.pmean`; one that is divided is written part by part. All devices
    draw the same numbers from a stream that is passed; fold in `jax.lax.axis_index` for others.

    Args:
        function: a function, method or module.
        mesh: the devices; None for the mesh of the context.
        in_specs: a `PartitionSpec` for all arguments, or one entry for each: for arrays a spec or pytree prefix, for an
            object a spec for all leaves or a dict from leaf selector (see `fw.select`) to spec, with `P()` for the rest.
            The object of a method is not counted and has `P()`.
        out_specs: specs of the result, see `jax.shard_map`.
        axis_names: the mesh axes to divide over; all if empty.

    Returns:
        A function with the positional arguments of `function`.

    Raises:
        LiftError: from the returned function, if a leaf would differ between devices that share it, or an object is
            returned.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jax.sharding import PartitionSpec as P
        >>> import framework as fw
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> tracker = fw.trackers.Sum()
        >>> def add(tracker, x):
        ...     tracker.update(jax.lax.psum(x.sum(), "data"))
        >>> fw.shard_map(add, mesh=mesh, in_specs=(P(), P("data")), out_specs=None)(tracker, jnp.arange(4.0))
        >>> float(tracker.compute())
        6.0
    """
    inner, bound = unbind(function)

    @functools.wraps(inner)
    def mapped(*args: Any) -> Any:
        lifted = Lifted((*bound, *args), static_scalars=False)
        leaf_specs, array_specs = _input_specs(lifted, in_specs, len(bound), len(args))
        found: list[Effects] = []

        def run(leaves: list[Any], arrays: list[Any]) -> tuple[list[Any], Any]:
            effects, values = lifted.run(inner, leaves, arrays)
            parts: list[Any] = []
            for part in effects.returned:
                if not isinstance(part, Output | Static):
                    raise LiftError("fw.shard_map: an object was returned; return its arrays, or change it in place.")
                parts.append(values[part.value] if isinstance(part, Output) else part.value)
            own = own_slots(effects.before, effects.after)
            changed: list[Any] = []
            for leaf in changed_leaves(effects, own):
                source = effects.leaves[leaf]
                value = leaves[source.leaf] if isinstance(source, Input) else values[source.value]
                spec = leaf_specs[own[leaf]] if leaf in own else PartitionSpec()
                _check_same(lifted, own.get(leaf), value, spec)
                changed.append(value)
            found.append(effects)
            return changed, jax.tree.unflatten(effects.treedef, parts)

        options: dict[str, Any] = {"mesh": mesh, "in_specs": (leaf_specs, array_specs)}
        if axis_names:
            options["axis_names"] = set(axis_names)
        arguments = (
            [_place(leaf, mesh, spec) for leaf, spec in zip(lifted.leaves, leaf_specs, strict=True)],
            [_place(array, mesh, spec) for array, spec in zip(lifted.call.arrays, array_specs, strict=True)],
        )
        # Which leaves are written is known after one abstract run; only then can their specs be given.
        probe = jax.shard_map(lambda *a: run(*a) and (), out_specs=(), **options)
        jax.eval_shape(probe, *arguments)
        effects = found[-1]
        own = own_slots(effects.before, effects.after)
        numbers = changed_leaves(effects, own)
        specs = [leaf_specs[own[leaf]] if leaf in own else PartitionSpec() for leaf in numbers]
        values, result = jax.shard_map(run, out_specs=(specs, out_specs), **options)(*arguments)
        outputs = {leaf: Output(index) for index, leaf in enumerate(numbers)}
        sources = tuple(outputs.get(leaf, source) for leaf, source in enumerate(effects.leaves))
        only = replace(effects, leaves=sources, treedef=jax.tree.structure(None), returned=(), output_count=len(values))
        lifted.finish(only, values)
        return result

    return mapped


def _input_specs(lifted: Lifted, in_specs: Any, bound: int, count: int) -> tuple[list[Any], list[Any]]:
    """Returns the spec of every leaf and of every array."""
    call, graph = lifted.call, lifted.graph
    entries = list(in_specs) if isinstance(in_specs, tuple) and not isinstance(in_specs, PartitionSpec) else None
    if entries is None:
        entries = [in_specs] * count
    if len(entries) != count:
        raise LiftError(f"fw.shard_map: in_specs has {len(entries)} entries for {count} arguments; give one for each.")
    entries = [PartitionSpec()] * bound + entries
    leaf_specs: list[Any] = [PartitionSpec()] * len(lifted.leaves)
    array_specs: list[Any] = []
    roles = iter(call.roles)
    for entry, child in zip(entries, call.treedef.children()[0].children(), strict=True):
        own = [next(roles) for _ in range(child.num_leaves)]
        by_selector = isinstance(entry, Mapping) and len(own) == 1 and own[0].name == "object"
        flat = [entry] if by_selector else spread(entry, child, _is_spec)
        for role, spec in zip(own, flat, strict=True):
            if role is ARRAY:
                array_specs.append(spec)
            elif role.name == "object":
                selected = spec if isinstance(spec, Mapping) else {lambda path: True: spec or PartitionSpec()}
                for leaf, path in leaf_paths(graph, (graph.structure.roots[role.root],)).items():
                    kind = graph.slots[leaf].kind
                    chosen = (to for selector, to in selected.items() if matches(selector, path, kind))
                    leaf_specs[leaf] = next(chosen, leaf_specs[leaf])
    return leaf_specs, array_specs


def _place(value: Any, mesh: Mesh | None, spec: PartitionSpec) -> Any:
    """Puts an array where the mesh expects it; JAX does so by itself for some kinds of mesh axes only."""
    if mesh is None:
        return value
    sharding = NamedSharding(mesh, spec)
    if not isinstance(value, Tracer):
        return jax.device_put(value, sharding)
    return (
        jax.lax.with_sharding_constraint(value, sharding) if _automatic(mesh) else jax.sharding.reshard(value, sharding)
    )


def _automatic(mesh: Mesh) -> bool:
    return all(kind is AxisType.Auto for kind in mesh.axis_types)


def _is_spec(part: Any) -> bool:
    return isinstance(part, PartitionSpec)


def _check_same(lifted: Lifted, leaf: int | None, value: Any, spec: PartitionSpec) -> None:
    """Refuses a value that differs along a mesh axis over which its leaf is one array for all devices."""
    divided: set[Any] = set()
    for part in spec:
        divided |= set(part) if isinstance(part, tuple) else {part}
    varying = sorted(varying_axes(value) - divided)
    if varying:
        name = "name" if leaf is None else str(lifted.graph.slots[leaf].key)
        path = "a new leaf" if leaf is None else lifted.path(leaf)
        raise LiftError(
            f"fw.shard_map: {path} was written with a value that differs along the mesh axis "
            f"{', '.join(map(repr, varying))}, and it is one array for all devices there. Reduce the value, as in "
            f"`jax.lax.pmean(x, {varying[0]!r})`, or divide the leaf with `in_specs={{{name!r}: P({varying[0]!r})}}`."
        )
