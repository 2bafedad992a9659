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
    return (
        isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and leaf.shape == value.shape and leaf.dtype == value.dtype
    )


def require_donated(effects: Effects, donated: Sequence[int], graph: Graph, name: str) -> None:
    """Refuses leaves that are written without reusing their buffers, for `donate="strict"`.

    Args:
        effects: what the call does.
        donated: numbers of the leaves that are donated.
        graph: the objects of the call.
        name: the name of the function.

    Raises:
        LiftError: if there are such leaves.
    """
    written = {leaf for leaf, source in enumerate(effects.leaves) if source != Input(leaf)}
    lost = [_where(graph, leaf) for leaf in sorted(written - set(donated)) if leaf < len(graph.slots)]
    if lost or not effects.same_structure:
        raise LiftError(
            f"{name} cannot reuse the buffers of {', '.join(lost) or 'objects whose structure it changes'}, and was "
            f'compiled with donate="strict": a new value has another shape or dtype, or an old one is still used. Keep '
            f"shape and dtype, as in `self.total = (self.total + x).astype(self.total.dtype)`, or compile with "
            f"`fw.jit(f)`, which allocates where it must."
        )


def shared_error(leaves: Sequence[int], graph: Graph, name: str) -> LiftError:
    """Returns the error for leaves that cannot be donated since somebody else holds their arrays.

    Args:
        leaves: their numbers.
        graph: the objects of the call.
        name: the name of the function.
    """
    return LiftError(
        f'{name} was compiled with donate="strict", and the arrays of {", ".join(_where(graph, leaf) for leaf in leaves)} '
        f"are held elsewhere as well: by a variable, or by another leaf, since one array in two leaves has one buffer. "
        f"Delete the variable, give each leaf its own array with `jnp.copy(x)`, or compile with `fw.jit(f)`, which copies."
    )


def _where(graph: Graph, leaf: int) -> str:
    slot = graph.slots[leaf]
    return describe(graph.nodes[slot.node], slot.key)


def unshare(donated: list[Any]) -> list[int]:
    """Copies, in place of the list, each leaf that somebody besides its one slot holds; returns their positions."""
    copied: list[int] = []
    for index in range(len(donated)):
        # Not a loop over the items: the loop variable would be one reference more.
        if next(iter(map(sys.getrefcount, donated[index : index + 1]))) > UNSHARED + 1:
            donated[index] = jnp.copy(donated[index])
            copied.append(index)
    return copied


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
