import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import optax
import pytest

from framework.cli.signatures import Signature, signature

Write = Callable[[Path, dict[str, str]], None]

SOURCE = """
import abc, dataclasses, functools
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import ClassVar, Generic, NamedTuple, TypeVar

T = TypeVar("T")

class Explicit(abc.ABC, Generic[T]):
    def __init__(self, a, b=1, *, c, d=None): ...
class Inherited(Explicit[int]): ...
class Second: ...
class Mixed(Second, Explicit): ...
class Empty: ...
class ByNew:
    def __new__(cls, a): ...
class Registers:
    def __init_subclass__(cls): ...
class Hidden(Registers): ...
class Shown(Registers):
    def __init__(self, a): ...
class FromElsewhere(unknown.Base): ...
class Meta(metaclass=type): ...

@dataclass
class Parent:
    constant: ClassVar[int] = 1
    x: int
    y: list[int] = field(default_factory=list)
    hidden: int = field(init=False, default=0)
@dataclasses.dataclass(frozen=True)
class Child(Parent):
    start: InitVar[int]
    _: KW_ONLY
    z: float = 0.0
class Plain(Child): ...
class Point(NamedTuple):
    x: int
    y: int = 0
class Built:
    @classmethod
    def make(cls, size): ...
    @staticmethod
    def alone(size): ...

def function(a, b=2, *rest, c, **others): ...
def positional(a, /, b): ...
@functools.lru_cache
def cached(a): ...
@unknown_decorator
def wrapped(a): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    write(tmp_path, {"sigs.py": SOURCE})
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def _known(target: str) -> Signature:
    found = signature(target)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "parameters", "required"),
    [
        ("Explicit", "a b c d", "a c"),
        ("Inherited", "a b c d", "a c"),
        ("Mixed", "a b c d", "a c"),
        ("Empty", "", ""),
        ("ByNew", "a", "a"),
        ("Shown", "a", "a"),
        ("Parent", "x y", "x"),
        ("Child", "x y start z", "x start"),
        ("Plain", "x y start z", "x start"),
        ("Point", "x y", "x"),
        ("Built.make", "size", "size"),
        ("Built.alone", "size", "size"),
        ("function", "a b c", "a c"),
        ("cached", "a", "a"),
    ],
)
def test_parameters(name: str, parameters: str, required: str) -> None:
    found = _known(f"sigs.{name}")
    assert list(found.parameters) == parameters.split()
    assert found.missing(set()) == required.split()
    assert found.open == (name == "function")


@pytest.mark.parametrize("name", ["Hidden", "FromElsewhere", "Meta", "positional", "wrapped"])
def test_hidden_signatures_are_not_guessed(name: str) -> None:
    assert signature(f"sigs.{name}") is None


def test_positional_arguments_fill_the_first_parameters() -> None:
    assert _known("sigs.Explicit").missing({"c"}, positional=1) == []


@pytest.mark.parametrize(
    "name",
    [
        "adamw",
        "sgd",
        "lion",
        "adafactor",
        "warmup_cosine_decay_schedule",
        "cosine_decay_schedule",
        "join_schedules",
    ],
)
def test_reading_agrees_with_importing(name: str) -> None:
    real = inspect.signature(getattr(optax, name)).parameters
    found = _known(f"optax.{name}")
    assert list(found.parameters) == list(real)
    assert found.missing(set()) == [key for key, one in real.items() if one.default is inspect.Parameter.empty]
