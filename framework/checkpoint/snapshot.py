"""One checkpoint: taken from a module in memory, written to a directory, and its leaves read again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from framework.checkpoint.arrays import (
    checksum,
    copy_to_host,
    key_implementation,
    place,
    read_arrays,
    stored_form,
    write_arrays,
)
from framework.checkpoint.manifest import (
    Damaged,
    Manifest,
    StoredLeaf,
    file_sizes,
    library_versions,
    write_manifest,
)
from framework.checkpoint.structure import LeafRecord, Structure, describe
from framework.module.base import Module
from framework.module.graph import walk

_ARRAYS = "arrays"


@dataclass(frozen=True)
class Snapshot:
    """A module at one moment, with nothing in it that later steps could change.

    Attributes:
        step: the number of the step.
        structure: objects, hyperparameters and leaves.
        arrays: the values of each leaf, on the host.
        implementations: for each leaf its generator if it is a random key, else None.
        data: the encoded position of the data.
        trainer: the encoded state of the training loop.
    """

    step: int
    structure: Structure
    arrays: list[np.ndarray]
    implementations: list[str | None]
    data: Any
    trainer: Any


def take(step: int, module: Module, *, data: Any, trainer: Any) -> Snapshot:
    """Copies a module to the host.

    Args:
        step: the number of the step.
        module: the module.
        data: the encoded position of the data.
        trainer: the encoded state of the training loop.

    Returns:
        The snapshot.

    Raises:
        CheckpointError: if a leaf has no values.
    """
    graph = walk([module])
    structure, leaves = describe(graph), graph.gather()
    arrays = copy_to_host(leaves, structure.leaves)
    return Snapshot(step, structure, arrays, [key_implementation(leaf) for leaf in leaves], data, trainer)


def write(snapshot: Snapshot, directory: Path) -> None:
    """Writes a snapshot into an empty directory; the manifest, without which nothing counts, comes last."""
    keys = _keys(snapshot.structure.leaves)
    stored: list[StoredLeaf] = []
    arrays: dict[str, np.ndarray] = {}
    for name, array, implementation in zip(keys, snapshot.arrays, snapshot.implementations, strict=True):
        key = name if array.size else None  # Orbax refuses arrays without elements, and there is nothing to store
        if key is not None:
            arrays[key] = stored_form(array)
        stored.append(StoredLeaf(key, array.shape, array.dtype.name, checksum(array), implementation))
    write_arrays(directory / _ARRAYS, arrays)
    manifest = Manifest(
        step=snapshot.step,
        structure=snapshot.structure,
        stored=stored,
        data=snapshot.data,
        trainer=snapshot.trainer,
        versions=library_versions(),
        files=file_sizes(directory),
    )
    write_manifest(directory, manifest)


def _keys(leaves: Sequence[LeafRecord]) -> list[str]:
    """Returns a name for each leaf: its path, with a number where two dictionary keys look alike."""
    keys: dict[str, None] = {}
    for leaf in leaves:
        key, number = leaf.path, 1
        while key in keys:
            number += 1
            key = f"{leaf.path}#{number}"
        keys[key] = None
    return list(keys)


def read_leaves(directory: Path, manifest: Manifest, like: Sequence[Any]) -> list[Any]:
    """Reads all leaves of a checkpoint, checks their bits and puts them on devices.

    Args:
        directory: the directory of the step.
        manifest: its manifest.
        like: for each leaf the one that it replaces, or None.

    Returns:
        The leaves, in buffers of their own.

    Raises:
        Damaged: if the arrays cannot be read, or have other bits than were written.
    """
    try:
        arrays = read_arrays(directory / _ARRAYS)
    except Exception as error:  # whatever TensorStore and Orbax raise on a damaged file, in their own words
        reason = " ".join(str(error).split())[:300]
        raise Damaged(f"its arrays cannot be read ({type(error).__name__}: {reason})") from error
    values = [
        _value(arrays, stored, record)
        for stored, record in zip(manifest.stored, manifest.structure.leaves, strict=True)
    ]
    return [
        place(value, there, stored.implementation)
        for value, there, stored in zip(values, like, manifest.stored, strict=True)
    ]


def _value(arrays: dict[str, np.ndarray], stored: StoredLeaf, record: LeafRecord) -> np.ndarray:
    dtype = np.dtype(stored.dtype)
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise Damaged(
            f"its leaf {record.path} is {dtype.name}, which JAX would cut to "
            f"{jax.dtypes.canonicalize_dtype(dtype).name} now; set `jax.config.update('jax_enable_x64', "
            f"True)` as the saved run did"
        )
    if stored.key is None:
        return np.zeros(stored.shape, dtype)
    if stored.key not in arrays:
        raise Damaged(f"its leaf {record.path} is not in the file")
    array = arrays[stored.key]
    array = array if array.dtype == dtype else array.view(dtype)
    if array.shape != stored.shape or checksum(array) != stored.checksum:
        raise Damaged(f"the values of its leaf {record.path} are not those that were written (their checksum is wrong)")
    return array
