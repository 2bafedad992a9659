"""A working directory as a user has it: a module of models and a directory of YAML beside it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MODULE = """
import dataclasses
from typing import Literal, Optional

raise RuntimeError("a configuration was checked by importing its target")


class Base:
    def __init__(
        self, width: int, rate: float = 0.1, mode: Literal["a", "b"] = "a", label: str = "x",
        sizes: list[int] = [], limit: Optional[int] = None, shape: tuple[int, ...] = (), *, rngs=None,
    ): ...


class Model(Base):
    pass


@dataclasses.dataclass
class Data:
    size: int = dataclasses.field(default=3)
    shuffle: bool = True


class Task:
    def __init__(self, model, optimizer, num_classes: int = 3): ...


def accepts_all(**keywords): ...
"""

FILES = {
    "their_module.py": MODULE,
    "groups/model/theirs.yaml": "_target_: their_module.Model\nwidth: 3\n",
    "groups/data/theirs.yaml": "_target_: their_module.Data\n",
    "groups/task/theirs.yaml": "_target_: their_module.Task\n",
    "groups/experiment/theirs.yaml": (
        "# @package _global_\ndefaults:\n  - override /data: theirs\n  - override /model: theirs\n"
        "  - override /task: theirs\ntrainer:\n  max_steps: 5\n"
    ),
}


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def write() -> Callable[[Path, dict[str, str]], None]:
    """Writes files, given by their relative names, below a directory."""
    return _write


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory of a user, with an experiment `theirs` in groups/; on sys.path meanwhile."""
    _write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    return tmp_path
