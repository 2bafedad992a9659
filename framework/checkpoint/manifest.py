"""The manifest of a checkpoint: what is stored, under which step, and which files belong to it."""

import json
import os
import platform
import zlib
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from framework.checkpoint.structure import LeafRecord, NodeRecord, Structure

NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class StoredLeaf:
    """How the values of one leaf are stored.

    Attributes:
        key: the name of the array in the Orbax checkpoint, None for an array without elements.
        shape: the shape of the stored values: for random keys with the words of the keys as last axis.
        dtype: the dtype of the stored values, by name.
        checksum: the CRC-32 of their bytes.
        implementation: the generator of random keys, None for other leaves.
    """

    key: str | None
    shape: tuple[int, ...]
    dtype: str
    checksum: int
    implementation: str | None


@dataclass(frozen=True)
class Manifest:
    """Everything of a checkpoint but the arrays.

    Attributes:
        step: the step it was taken at.
        structure: objects, hyperparameters and leaves.
        stored: for each leaf how its values are stored.
        data: the encoded position of the data.
        trainer: the encoded state of the training loop.
        versions: the versions of the libraries that wrote it.
        files: size in bytes of each file of the checkpoint, by path below its directory.
    """

    step: int
    structure: Structure
    stored: list[StoredLeaf]
    data: Any
    trainer: Any
    versions: dict[str, str]
    files: dict[str, int]


class Damaged(Exception):
    """A checkpoint on disk is not complete or not readable; the text is the reason, without the place."""


def library_versions() -> dict[str, str]:
    """Returns the versions of what took part in writing a checkpoint."""
    names = ("framework", "jax", "jaxlib", "numpy", "orbax-checkpoint")
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # used from its folder
        return "not installed"


def file_sizes(directory: Path) -> dict[str, int]:
    """Returns the size of each file below a directory, without the manifest."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / NAME)
    return {path.relative_to(directory).as_posix(): path.stat().st_size for path in found}


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes the manifest, which makes a directory a checkpoint, and returns when it is on disk."""
    body = json.dumps(asdict(manifest))
    text = json.dumps({"format": FORMAT, "checksum": zlib.crc32(body.encode())})
    with (directory / NAME).open("w", encoding="ascii") as file:
        file.write(f"{text}\n{body}\n")
        file.flush()
        os.fsync(file.fileno())


def read_manifest(directory: Path) -> Manifest:
    """Reads the manifest of a checkpoint.

    Args:
        directory: the directory of one step.

    Returns:
        The manifest.

    Raises:
        Damaged: if there is none, or it is of another format, or not what was written.
    """
    try:
        head, body, *_ = (directory / NAME).read_text(encoding="ascii").split("\n")
        header = json.loads(head)
        if header["format"] != FORMAT:
            raise Damaged(f"its manifest has format {header['format']}, and this version reads format {FORMAT}")
        if header["checksum"] != zlib.crc32(body.encode()):
            raise Damaged("the checksum of its manifest is wrong")
        return _manifest(json.loads(body))
    except FileNotFoundError:
        raise Damaged("it has no manifest, so that it was never finished") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"its manifest cannot be read ({error})") from error


def _manifest(fields: dict[str, Any]) -> Manifest:
    structure = fields["structure"]
    nodes = [
        NodeRecord(**node | {"content": [(name, child) for name, child in node["content"]]})
        for node in structure["nodes"]
    ]
    leaves = [LeafRecord(**leaf | {"shape": tuple(leaf["shape"])}) for leaf in structure["leaves"]]
    stored = [StoredLeaf(**leaf | {"shape": tuple(leaf["shape"])}) for leaf in fields["stored"]]
    made: dict[str, Any] = {"structure": Structure(nodes, leaves), "stored": stored}
    return Manifest(**fields | made)


def check_files(directory: Path, manifest: Manifest) -> None:
    """Checks that all files of a checkpoint are there with their sizes; the content is checked when it is
    read.

    Raises:
        Damaged: naming the file that is missing or has another size.
    """
    for name, size in manifest.files.items():
        try:
            found = (directory / name).stat().st_size
        except OSError:
            raise Damaged(f"its file {name} is missing") from None
        if found != size:
            raise Damaged(f"its file {name} has {found} bytes and should have {size}")
