"""Which files are read, and on which side they are."""

import os
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.data.corpus import read_corpus
from framework.errors import DataError

EVERYTHING = 10**9


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@settings(deadline=None)  # writes files
@given(
    names=st.sets(st.from_regex(r"(a|b|sub-x|subx)/?[a-c_]{1,3}\.py", fullmatch=True), min_size=8),
    holdout_one_in=st.integers(2, 4),
)
def test_property_files_are_sorted_and_divided_by_a_hash_of_their_path(
    names: set[str], holdout_one_in: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("corpus")
    write(root, {name: name for name in names})
    held_out = [name for name in sorted(names) if zlib.crc32(name.encode()) % holdout_one_in == 0]
    train = [name for name in sorted(names) if name not in held_out]
    if not held_out or not train:
        with pytest.raises(DataError, match=r"none of the \d+ Python files"):
            read_corpus(root, max_bytes=EVERYTHING, holdout_one_in=holdout_one_in)
        return
    corpus = read_corpus(root, max_bytes=EVERYTHING, holdout_one_in=holdout_one_in)
    assert list(corpus.train.items()) == [(name, name) for name in train]
    assert list(corpus.eval.items()) == [(name, name) for name in held_out]


def split_names() -> tuple[list[str], str]:
    """Three names on the training side and one on the other."""
    names = [f"m{number}.py" for number in range(100)]
    held_out = [name for name in names if zlib.crc32(name.encode()) % 20 == 0]
    return [name for name in names if name not in held_out][:3], held_out[0]


def test_only_utf_8_source_outside_of_tests_and_packages_is_read(tmp_path: Path) -> None:
    (first, second, third), held_out = split_names()
    left_out = ("test", "tests", "idlelib", "turtledemo", "lib2to3", "site-packages", "dist-packages")
    write(
        tmp_path,
        {
            first: "one\r\ntwo\rthree\n",
            second: b"caf\xe9",
            third + "c": b"compiled",
            "notes.txt": "text",
            held_out: "held out",
            **dict.fromkeys((f"{folder}/{first}" for folder in left_out), "left out"),
            **{f"package/{folder}/{first}": "left out" for folder in left_out},
        },
    )
    corpus = read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)
    assert corpus.train == {first: "one\ntwo\nthree\n"}
    assert corpus.eval == {held_out: "held out"}


def test_links_that_point_nowhere_are_no_files(tmp_path: Path) -> None:
    (first, second, _), held_out = split_names()
    write(tmp_path, {first: "one", held_out: "two"})
    (tmp_path / second).symlink_to("nobody@host.1234")
    assert list(read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20).train) == [first]


def test_reading_ends_with_the_file_that_reaches_the_size(tmp_path: Path) -> None:
    names = [f"{number:02}.py" for number in range(40)]
    write(tmp_path, dict.fromkeys(names, "0123456789"))
    corpus = read_corpus(tmp_path, max_bytes=95, holdout_one_in=3)
    train = [name for name in names if zlib.crc32(name.encode()) % 3 != 0][:10]
    assert list(corpus.train) == train
    assert list(corpus.eval) == [name for name in names if name < train[-1] and name not in train]


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no folder `.*nowhere`.*python_source\(root=\"src\"\)") as caught:
        read_corpus(tmp_path / "nowhere", max_bytes=EVERYTHING, holdout_one_in=20)
    assert "\n" not in str(caught.value)


def test_folder_without_python_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"notes.txt": "text", "latin.py": b"\xe9"})
    with pytest.raises(DataError, match="there are no Python files to read in"):
        read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)


def test_part_without_files_is_refused(tmp_path: Path) -> None:
    (first, second, third), held_out = split_names()
    write(tmp_path, {first: "a", second: "b", third: "c"})
    with pytest.raises(DataError, match=r"none of the 3 Python files.*left to evaluate on.*holdout_one_in=3"):
        read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)
    write(tmp_path, {first: "", second: "", third: "", held_out: "d"})
    with pytest.raises(DataError, match=r"none of the 4 Python files.*left to train on"):
        read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)


@pytest.mark.parametrize(("max_bytes", "holdout_one_in"), [(0, 20), (100, 1)])
def test_arguments_out_of_range_are_refused(tmp_path: Path, max_bytes: int, holdout_one_in: int) -> None:
    with pytest.raises(DataError, match=f"`max_bytes` is {max_bytes} and `holdout_one_in` is {holdout_one_in}"):
        read_corpus(tmp_path, max_bytes=max_bytes, holdout_one_in=holdout_one_in)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may read everything")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    (first, _, _), held_out = split_names()
    write(tmp_path, {first: "one", held_out: "two"})
    (tmp_path / first).chmod(0)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)


def test_file_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, _, _), held_out = split_names()
    write(tmp_path, {first: "one", held_out: "two"})

    def fail(path: Path) -> bytes:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(DataError, match=r"m\d+.py` cannot be read: Input/output error.*another text"):
        read_corpus(tmp_path, max_bytes=EVERYTHING, holdout_one_in=20)
