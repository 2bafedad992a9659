"""Where the arrays of a compiled call lie: `in_shardings` and `out_shardings` for objects and arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from framework.errors import LiftError
from framework.lift.effects import Effects, Output
from framework.lift.plan import ARRAY, Call, spread
from framework.module.graph import Graph, read_slot, write_slot
from framework.module.paths import leaf_paths, matches


class Shardings:
    """The shardings of one call's leaves, arrays and results.

    Args:
        inputs: one entry for all positional arguments or one for each: None, a sharding, for an object a dict from leaf
            selector to sharding, for arrays a pytree prefix.
        outputs: None, or a pytree prefix of the result.
        call: the arguments.
        graph: the objects among them.

    Raises:
        LiftError: if the number of entries is not that of the arguments.
    """

    def __init__(self, inputs: Any, outputs: Any, call: Call, graph: Graph) -> None:
        self._outputs = outputs
        self._leaves: list[Any] = [None] * graph.structure.leaf_count
        self._arrays: list[Any] = []
        positional, keyword = call.treedef.children()
        children = positional.children()
        entries = list(inputs) if isinstance(inputs, list | tuple) else [inputs] * len(children)
        if len(entries) != len(children):
            raise LiftError(
                f"fw.jit: in_shardings has {len(entries)} entries and the call {len(children)} positional arguments "
                f"(that of a method counts its object). Give one for each, None where it does not matter."
            )
        flat: list[Any] = []
        for entry, child in zip(entries, children, strict=True):
            if isinstance(entry, Mapping) and child.num_leaves == 1:
                flat.append(entry)  # by leaf selector
            else:
                flat += spread(entry, child, _is_sharding)
        for role, entry in zip(call.roles, [*flat, *[None] * keyword.num_leaves], strict=True):
            if role is ARRAY:
                self._arrays.append(entry)
            elif role.name == "object" and entry is not None:
                by_selector = entry if isinstance(entry, Mapping) else {lambda path: True: entry}
                for leaf, path in leaf_paths(graph, (graph.structure.roots[role.root],)).items():
                    kind = graph.slots[leaf].kind
                    chosen = (to for selector, to in by_selector.items() if matches(selector, path, kind))
                    self._leaves[leaf] = next(chosen, self._leaves[leaf])

    def place_leaves(self, graph: Graph) -> None:
        """Moves the leaves of objects to where they belong, once, so that the first call is like all others."""
        for slot, to in zip(graph.slots, self._leaves, strict=True):
            leaf = read_slot(slot)
            if to is not None and isinstance(leaf, jax.Array | np.ndarray):
                write_slot(slot, jax.device_put(leaf, to))

    def place_arrays(self, arrays: Sequence[Any]) -> list[Any]:
        """Puts array arguments where they belong when the program begins."""
        return list(map(_place, arrays, self._arrays))

    def place_results(self, effects: Effects, values: Sequence[Any]) -> list[Any]:
        """Puts the results where they belong, and written leaves where they were."""
        placed = list(values)
        if self._outputs is not None:
            wanted = spread(self._outputs, effects.treedef, _is_sharding)
            for part, to in zip(effects.returned, wanted, strict=True):
                if isinstance(part, Output):
                    placed[part.value] = _place(placed[part.value], to)
        for leaf, source in enumerate(effects.leaves[: len(self._leaves)]):
            if isinstance(source, Output):
                placed[source.value] = _place(placed[source.value], self._leaves[leaf])
        return placed


def _place(value: Any, sharding: Any) -> Any:
    return value if sharding is None else jax.lax.with_sharding_constraint(value, sharding)


def _is_sharding(part: Any) -> bool:
    return isinstance(part, jax.sharding.Sharding | jax.sharding.PartitionSpec)
