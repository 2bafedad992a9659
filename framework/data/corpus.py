"""Reads the source files of a folder, in an order and a division that do not depend on the machine."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from framework.errors import DataError

_LEFT_OUT = frozenset({"test", "tests", "idlelib", "turtledemo", "lib2to3", "site-packages", "dist-packages"})


@dataclass(frozen=True)
class Corpus:
    """Texts of whole files.

    Args:
        train: relative path and text of each file to train on.
        eval: those of the files that are held out.
    """

    train: dict[str, str]
    eval: dict[str, str]


def read_corpus(root: str | os.PathLike[str], *, max_bytes: int, holdout_one_in: int) -> Corpus:
    r"""Reads the Python files of a folder, sorted by relative path.

    Whether a file is held out depends on its relative path alone, so files never change sides when others
    appear. Folders of tests and of installed packages are left out, and files that are not UTF-8.

    Args:
        root: the folder.
        max_bytes: reading ends with the file that brings the training part to this size.
        holdout_one_in: one file in so many is held out, on average.

    Returns:
        The texts, with "\n" as the end of each line.

    Raises:
        DataError: if the folder or a file cannot be read, or if one of the parts stays empty.

    Example:
        >>> import sysconfig
        >>> corpus = read_corpus(sysconfig.get_path("stdlib"), max_bytes=500_000, holdout_one_in=3)
        >>> len(corpus.train) > len(corpus.eval) > 0, corpus.train.keys() & corpus.eval.keys()
        (True, set())
    """
    if max_bytes < 1 or holdout_one_in < 2:
        raise DataError(
            f"`max_bytes` is {max_bytes} and `holdout_one_in` is {holdout_one_in}, but there must be at "
            f"least 1 byte to read and 1 file in 2 or more held out. Write `max_bytes=8_000_000, "
            f"holdout_one_in=20`."
        )
    if not Path(root).is_dir():
        raise DataError(
            f"there is no folder `{os.fspath(root)}` to read Python files from. Pass one that exists, as in "
            f'`python_source(root="src")`, or leave `root` out for the standard library of this Python.'
        )
    corpus, size = Corpus({}, {}), 0
    for path in sorted(_python_files(Path(root))):
        content = _content(Path(root, path))
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        held_out = zlib.crc32(path.encode("utf-8", "surrogateescape")) % holdout_one_in == 0
        (corpus.eval if held_out else corpus.train)[path] = text.replace("\r\n", "\n").replace("\r", "\n")
        size += 0 if held_out else len(content)
        if size >= max_bytes:
            break
    _refuse_empty(corpus, root, max_bytes, holdout_one_in)
    return corpus


def _python_files(root: Path) -> Iterator[str]:
    """Yields paths relative to the root, with "/" on every system."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    for folder, below, names in os.walk(root, onerror=refuse):
        below[:] = [name for name in below if name not in _LEFT_OUT]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file():  # editors leave links that point nowhere
                yield path.relative_to(root).as_posix()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> DataError:
    return DataError(
        f"`{error.filename}` cannot be read: {error.strerror}. Leaving it out would train on another text "
        f"without a word. Give yourself the right to read it with `chmod u+r`, or pass a `root` without it."
    )


def _refuse_empty(corpus: Corpus, root: str | os.PathLike[str], max_bytes: int, holdout_one_in: int) -> None:
    count = len(corpus.train) + len(corpus.eval)
    if count == 0:
        raise DataError(
            f"there are no Python files to read in `{os.fspath(root)}`: it has no file `*.py` in UTF-8 "
            f"outside of folders of tests and of installed packages. Pass a `root` that "
            f'has, as in `python_source(root="src")`.'
        )
    for part, texts in (("train on", corpus.train), ("evaluate on", corpus.eval)):
        if not any(texts.values()):
            raise DataError(
                f"none of the {count} Python files read from `{os.fspath(root)}` is left to {part}: one in "
                f"{holdout_one_in} is held out, chosen by a hash of its path, and reading ended at "
                f"{max_bytes} bytes. Pass a `root` with more files, a larger `max_bytes`, or another "
                f"`holdout_one_in`, as in `python_source(holdout_one_in=3)`."
            )
