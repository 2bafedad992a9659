"""Donated buffers: which leaves of a call are given up, and how nobody else loses an array by it."""

import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output
from framework.module.graph import Graph, read_slot
from framework.module.ownership import describe


def _own_references() -> int:
    """Counts the references to a leaf that the call itself holds: its slot, the gathered list, the argument."""
    slot = {"leaf": object()}
    gathered = [slot["leaf"]]
    return next(iter(map(sys.getrefcount, gathered)))


UNSHARED = _own_references()


def donatable(effects: Effects, leaves: Sequence[Any], values: Sequence[Any]) -> tuple[int, ...]:
    """Chooses the leaves whose buffers the compiled program may reuse.

    Args:
        effects: what the call does.
        leaves: the leaves before the call (arrays or shapes).
        values: the output values (arrays or shapes).

    Returns:
        Numbers of leaves that are overwritten by a value of the same shape and dtype and used by nobody afterwards.
    """
    if not effects.same_structure:
        return ()
    kept = {source.leaf for source in effects.leaves if isinstance(source, Input)}
    return tuple(
        index
        for index, source in enumerate(effects.leaves)
        if isinstance(source, Output) and index not in kept and _fits(leaves[index], values[source.value])
    )


def _fits(leaf: Any, value: Any) -> bool:
    return isinstance(leaf, jax.Array) and leaf.shape == value.shape and leaf.dtype == value.dtype


def unshare(donated: list[Any]) -> None:
    """Copies, in place of the list, each leaf that somebody besides its one slot holds."""
    for index in range(len(donated)):
        # Not a loop over the items: the loop variable would be one reference more.
        if next(iter(map(sys.getrefcount, donated[index : index + 1]))) > UNSHARED + 1:
            donated[index] = jnp.copy(donated[index])


def explain_lost(error: Exception, graph: Graph, name: str) -> Exception:
    """Returns the error to raise when a compiled call failed, naming the leaves that it had already consumed.

    Args:
        error: what the call raised.
        graph: the objects of the call.
        name: the name of the function.
    """
    lost = [
        describe(graph.nodes[slot.node], slot.key)
        for slot in graph.slots
        if isinstance(leaf := read_slot(slot), jax.Array) and leaf.is_deleted()
    ]
    if not lost:
        return error
    return LiftError(
        f"{name} failed after its donated inputs were given up, or was given leaves that an earlier call had given up "
        f"({error}). Lost: {', '.join(lost[:8])}{' and more' if len(lost) > 8 else ''}. Restore the object from a "
        f"checkpoint or a clone, or compile with `fw.jit(f, donate=False)` to keep inputs alive."
    )
