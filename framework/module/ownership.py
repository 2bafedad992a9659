"""Who may touch an object: the trace that it was made in.

A mutable object belongs to the trace in which it was created. Writing to it from another trace would leave a tracer on
it or lose the write, so it is refused. Reading its concrete arrays while a lifted function is being compiled would
freeze them into the program, so that is refused too, unless the function was made with `capture="constant"`.
"""

import operator
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from framework._compat import current_trace
from framework.errors import LiftError, user_line

with jax.ensure_compile_time_eval():
    OUTSIDE = current_trace()  # the token of "no trace at all"; this file may first be imported inside a trace


class _Compiling(threading.local):
    """What the lifted function that is being compiled in this thread may read, and what it has read.

    Attributes:
        forbidden: True while reads of concrete outside arrays are refused.
        reads: captured reads `(object, attribute, value)` of the innermost compiled function, or None outside of one.
        created: leaves `(object, attribute, value)` that the innermost compiled function made where there was nothing.
    """

    forbidden: bool = False
    reads: list[tuple[Any, Any, Any]] | None = None
    created: list[tuple[Any, Any, Any]]

    def __init__(self) -> None:
        self.created = []


compiling = _Compiling()


class _Scopes:
    """Counts the compiled functions that are being traced in all threads.

    What belongs to a thread is slow to look up, and most reads happen while nothing is traced anywhere.
    """

    __slots__ = ("_lock", "open")

    def __init__(self) -> None:
        self.open = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.open += count


scopes = _Scopes()


@contextmanager
def compiling_scope(*, constant_captures: bool) -> Generator[list[tuple[Any, Any, Any]]]:
    """Marks that a lifted function is being traced for compilation, and collects what it reads by closure."""
    before = compiling.forbidden, compiling.reads, compiling.created
    reads: list[tuple[Any, Any, Any]] = []
    compiling.forbidden, compiling.reads, compiling.created = not constant_captures, reads, []
    scopes.add(1)
    try:
        yield reads
    finally:
        scopes.add(-1)
        compiling.forbidden, compiling.reads, compiling.created = before
        note_reads(reads)


def note_reads(reads: list[tuple[Any, Any, Any]]) -> None:
    """Passes captured reads on to the compiled function around the one that made them, if there is one."""
    if compiling.reads is not None:
        compiling.reads.extend(reads)


def is_concrete(value: Any) -> bool:
    """Tells whether a leaf is an array with values, not a tracer or an abstract shape."""
    return isinstance(value, jax.Array | np.ndarray) and not isinstance(value, Tracer)


def check_read(owner: Any, attribute: Any, value: Any) -> None:
    """Refuses a read that would freeze an array into the program, and notes every other captured read.

    Args:
        owner: the object that holds the value.
        attribute: the attribute name, list index or dictionary key of the value.
        value: what is read.

    Raises:
        LiftError: if a compiled function reads a concrete array of an object that it was not passed.
    """
    reads = compiling.reads
    if reads is None or owner._trace == current_trace():
        return
    if compiling.forbidden and owner._trace == OUTSIDE and any(map(is_concrete, jax.tree.leaves(value))):
        where = describe(owner, attribute)
        raise LiftError(
            f"{where} was read inside a compiled function that was not passed this {type(owner).__name__} "
            f"({user_line()}). Its array would be frozen into the program as a constant, and later changes to the "
            f"object would be ignored. Pass the {type(owner).__name__} to the function as an argument, or, if the "
            f'value never changes, compile with `fw.jit(f, capture="constant")`.'
        )
    reads.append((owner, attribute, value))


def check_reads(owner: Any, attributes: Iterable[Any]) -> None:
    """Checks the read of several children of an object, as when JAX flattens it; those that are objects check their own."""
    storage: Any = owner._storage()
    base: Any = list if isinstance(owner, list) else dict
    for attribute in attributes:
        value = base.__getitem__(storage, attribute)
        if isinstance(value, jax.Array | np.ndarray | tuple):
            check_read(owner, attribute, value)


def still_there(owner: Any, attribute: Any, value: Any) -> bool:
    """Tells whether a captured read, as `check_read` noted it, would find the same arrays again."""
    storage: Any = owner._storage()
    base: Any = list if isinstance(owner, list) else dict
    if attribute is None:  # the whole of a list or dict was read
        items = dict.values(storage) if base is dict else list.__iter__(storage)
        arrays = [item for item in items if isinstance(item, jax.Array | np.ndarray)]
        return len(arrays) == len(value) and all(map(operator.is_, arrays, value))
    try:
        return base.__getitem__(storage, attribute) is value
    except (KeyError, IndexError):
        return False


def check_write(owner: Any, attribute: Any) -> None:
    """Refuses to change an object that was made outside of the current trace.

    Args:
        owner: the object that is about to be changed.
        attribute: the attribute name, list index or dictionary key, or None for the whole object.

    Raises:
        LiftError: if the object belongs to another trace.
    """
    if owner._trace == current_trace():
        return
    name = type(owner).__name__
    raise LiftError(
        f"{describe(owner, attribute)} was changed inside a traced function that was not passed this {name} "
        f"({user_line()}). The change could not come out: it would be lost, or leave a tracer on the object. Pass the "
        f"{name} to the innermost transformed function as an argument (`fw.jit`, `fw.value_and_grad` and the other "
        f"`fw` transformations return its changes for you; plain JAX needs it returned as well)."
    )


def note_write(owner: Any, attribute: Any, value: Any = None) -> None:
    """Writes down a change that was checked and is about to be made, where plain JAX may lose it.

    Args:
        owner: the object that is changed.
        attribute: as for `check_write`.
        value: what is put there.
    """
    if owner._pending is not None:
        owner._pending.note(owner, attribute, value)


def describe(owner: Any, attribute: Any) -> str:
    """Names a place in an object for an error text, as in `Encoder.blocks[3]`."""
    name = type(owner).__name__
    if attribute is None:
        return name
    return f"{name}.{attribute}" if isinstance(attribute, str) else f"{name}[{attribute!r}]"
