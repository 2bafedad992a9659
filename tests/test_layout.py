"""The order of the tree: who may import whom, how long a file may be, and what may not be in it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "framework"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
FLOORS = [
    {"errors", "_compat"},
    {"module"},
    {"lift"},
    {"random", "nn", "optim", "trackers", "precision", "interop"},
    {"data", "checkpoint", "monitor", "parallel"},
    {"train", "testing"},
    {"cli", "__main__", "__init__"},
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}


def part(path: Path) -> str:
    """Returns the subpackage or module of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # `from .x import y` stands for `from package.of.this.file.x import y`.
            above = ["framework", *path.relative_to(PACKAGE).parts[: -node.level]] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def private_attributes(path: Path) -> set[str]:
    """Returns what is reached in JAX without an import, as in `jax._src`."""
    return {
        f"jax.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "jax"
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
    }


def tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.split("\0") if name]
    if not names:
        pytest.skip("not a git checkout")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_downwards(path: Path) -> None:
    own = FLOOR[part(path)]
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "framework" and len(pieces) > 1 and pieces[1] in FLOOR:
            assert FLOOR[pieces[1]] <= own, f"{path.name} imports {name}, which is above it"
        if name == "framework":
            assert part(path) == "cli", f"{path.name} imports the whole package"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_has_a_docstring(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_jax_is_used(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith(("jax._", "jaxlib"))]
    assert not private_attributes(path)


def test_the_top_level_is_the_agreed_one() -> None:
    allowed = {
        *("framework", "configs", "examples", "tests", "scripts", "docs", "benchmarks", ".ci"),
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml", "mkdocs.yml"),
        *(".gitignore", ".pre-commit-config.yaml"),
    }
    assert {name.split("/")[0] for name in tracked_files()} <= allowed


def test_no_file_names_a_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:root|home|work|Users)/\w")
    for name in tracked_files():
        path = ROOT / name
        if path.is_file():  # not one that was removed and is still in the index
            assert not pattern.search(path.read_bytes().decode(errors="replace")), name


@pytest.mark.parametrize("module", ["framework", "framework.errors", "framework.cli.main", "framework.cli.check"])
def test_these_are_imported_without_jax(module: str) -> None:
    program = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_can_be_had() -> None:
    import framework

    missing = [name for name in framework.__all__ if not hasattr(framework, name)]
    assert missing == []
