import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from framework.cli.modules import Definition, Opaque, TargetNotFoundError, find_module, last_name, locate

Write = Callable[[Path, dict[str, str]], None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> Path:
    files = {
        "lib/__init__.py": (
            "import lazy_loader\n__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n"
        ),
        "lib/__init__.pyi": "from .nn.layers import Dense as Dense\nfrom .digits import digits as digits\n",
        "lib/digits.py": "def digits(size: int = 1): ...\n",
        "lib/nn/__init__.py": ("from .layers import *\nfrom lib.nn import layers as renamed\nAlias = renamed.Dense\n"),
        "lib/nn/layers.py": "class Dense:\n    @classmethod\n    def wide(cls, width): ...\n",
        "lib/hooked.py": "OLD = {'Former': 1}\ndef __getattr__(name): ...\nclass Present: ...\n",
        "lib/circle.py": "from lib.round import thing\n",
        "lib/round.py": "from lib.circle import thing\n",
        "lib/branches.py": "try:\n    from nowhere import f\nexcept ImportError:\n    def f(a): ...\n",
        "space/inner.py": "class Here: ...\nvalue = Here()\n",
        "broken.py": "def (:\n",
    }
    write(tmp_path, files)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def _name(target: str) -> str:
    found = locate(target)
    assert isinstance(found, Definition)
    return found.node.name


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("lib.Dense", "Dense"),
        ("lib.digits", "digits"),
        ("lib.nn.Dense", "Dense"),
        ("lib.nn.Alias", "Dense"),
        ("lib.nn.layers.Dense.wide", "wide"),
        ("lib.branches.f", "f"),
        ("space.inner.Here", "Here"),
        ("optax.adamw", "adamw"),
        ("optax.schedules.cosine_decay_schedule", "cosine_decay_schedule"),
        ("difflib.SequenceMatcher", "SequenceMatcher"),
    ],
)
def test_names_are_followed_to_their_definition(package: Path, target: str, name: str) -> None:
    assert _name(target) == name


@pytest.mark.parametrize(
    "target",
    [
        "lib.hooked.Former",
        "lib.circle.thing",
        "space.inner.value",
        "math.sqrt",
        "numpy.random.PCG64",
        "builtins.dict",
    ],
)
def test_what_reading_cannot_tell_counts_as_right(package: Path, target: str) -> None:
    assert isinstance(locate(target), Opaque)


@pytest.mark.parametrize(
    ("target", "message", "candidate"),
    [
        ("lib.Dens", "lib has no 'Dens'", "Dense"),
        ("lib.nn.layers.Dens", "lib.nn.layers has no 'Dens'", "Dense"),
        ("lib.hooked.Presentt", "lib.hooked has no 'Presentt'", "Present"),
        ("optax.adamww", "optax has no 'adamww'", "adamw"),
        ("lib.nn", "lib.nn is a module, not a class or a function", "Alias"),
        ("nowhere_at_all.f", "there is no module 'nowhere_at_all'", None),
        ("broken.f", "broken has no 'f'", None),
    ],
)
def test_names_that_lead_nowhere(package: Path, target: str, message: str, candidate: str | None) -> None:
    with pytest.raises(TargetNotFoundError) as caught:
        locate(target)
    assert str(caught.value) == message
    assert candidate is None or candidate in caught.value.candidates


def test_nothing_is_imported(package: Path) -> None:
    locate("lib.nn.Dense")
    locate("space.inner.Here")
    assert not {"lib", "lib.nn", "lib.nn.layers", "space", "space.inner"} & set(sys.modules)


def test_a_package_beats_a_module_of_the_same_name(package: Path, write: Write) -> None:
    write(package, {"lib/nn.py": ""})
    found = find_module("lib.nn")
    assert not isinstance(found, Opaque | None) and found.file == package / "lib" / "nn" / "__init__.py"


@pytest.mark.parametrize(("text", "name"), [("a.b.C", "C"), ("a.f(1)", "f"), ("Optional[int]", "Optional"), ("1", "")])
def test_the_last_name_of_an_expression(text: str, name: str) -> None:
    assert last_name(ast.parse(text, mode="eval").body) == name
