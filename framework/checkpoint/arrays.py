"""Arrays to and from disk: copies to the host, what Orbax stores, checksums, and placing on devices."""

import logging
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from framework.checkpoint.structure import LeafRecord
from framework.errors import CheckpointError

_logger = logging.getLogger(__name__)


def copy_to_host(leaves: Sequence[Any], records: Sequence[LeafRecord]) -> list[np.ndarray]:
    """Copies leaves into host memory of their own, so that they may be donated or overwritten right
    afterwards.

    Args:
        leaves: arrays; typed random keys are copied as the words they consist of.
        records: what they are, for the error texts.

    Returns:
        One NumPy array for each leaf.

    Raises:
        CheckpointError: if a leaf has no values that this process could read.
    """
    arrays = [_readable(leaf, record) for leaf, record in zip(leaves, records, strict=True)]
    for array in arrays:
        if isinstance(array, jax.Array):
            array.copy_to_host_async()  # all transfers under way before the first one is waited for
    # A copy, not a view: on a CPU device a view is the buffer itself, and would be overwritten by a donating
    # step.
    return [np.array(array) for array in arrays]


def _readable(leaf: Any, record: LeafRecord) -> Any:
    why = None
    if isinstance(leaf, jax.core.Tracer):
        why = "is a tracer: save after the compiled function has returned, not inside of it"
    elif not isinstance(leaf, jax.Array | np.ndarray):
        why = "is only a shape: restore into the object or build it with arrays before saving it"
    elif isinstance(leaf, jax.Array) and leaf.is_deleted():
        why = "was donated to a compiled function and has no values: save the object that came out of it"
    elif isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        why = "is spread over several processes: gather it first with `jax.experimental.multihost_utils`"
    if why is not None:
        raise CheckpointError(f"nothing was saved, because the leaf {record.path} {why}.")
    if isinstance(leaf, jax.Array) and is_key(leaf):
        return jax.random.key_data(leaf)
    return leaf


def is_key(leaf: Any) -> bool:
    """Tells whether a leaf (or its shape) is a typed random key."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def key_implementation(leaf: Any) -> str | None:
    """Returns the name of the generator of a random key, and None for other leaves."""
    return str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) and is_key(leaf) else None


def stored_form(array: np.ndarray) -> np.ndarray:
    """Returns the array that is written: itself, or its bytes where TensorStore does not know the dtype."""
    if array.dtype.kind in "biufc" or array.dtype.name == "bfloat16":
        return array
    return array.view(np.uint8)


def checksum(array: np.ndarray) -> int:
    """Returns the CRC-32 of the bytes of an array.

    Example:
        >>> checksum(np.zeros((), np.uint8)) == checksum(np.zeros(1, np.int8)) == 0xD202EF8D
        True
    """
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def write_arrays(directory: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays as one Orbax checkpoint, and returns when they are on disk.

    Args:
        directory: a path that does not exist yet.
        arrays: arrays without zero-size ones; may be empty, then nothing is written.
    """
    if arrays:
        with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            checkpointer.save(directory, dict(arrays))


def read_arrays(directory: Path) -> dict[str, np.ndarray]:
    """Reads what `write_arrays` wrote."""
    if not directory.exists():
        return {}
    with _quiet(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(directory)


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keeps what Orbax logs at debug level: every failure is raised as well, and needs no second report."""

    def demote(record: logging.LogRecord) -> bool:
        if f"{Path('orbax', 'checkpoint')}" not in record.pathname:
            return True
        _logger.debug("orbax: %s", record.getMessage())
        return False

    absl = logging.getLogger("absl")
    absl.addFilter(demote)
    try:
        yield
    finally:
        absl.removeFilter(demote)


def place(array: np.ndarray, like: Any, implementation: str | None) -> Any:
    """Puts an array onto the device of the leaf that it replaces.

    Args:
        array: the values on the host.
        like: the leaf (or its shape) that is there now, or None.
        implementation: the generator, for random keys.

    Returns:
        A JAX array in a buffer of its own, which a compiled function can reuse; committed to a sharding only
        if `like` was.
    """
    # The plain conversion copies; a transfer to a sharding may borrow the memory of the host array instead,
    # and a borrowed buffer cannot be donated.
    sharding = getattr(like, "sharding", None) if getattr(like, "committed", True) else None
    placed = jnp.array(array) if sharding is None else jnp.copy(jax.device_put(array, sharding))
    return placed if implementation is None else jax.random.wrap_key_data(placed, impl=implementation)
