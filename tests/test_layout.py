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
    {"train"},
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
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


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


def test_the_top_level_is_the_agreed_one() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    if not listed:
        pytest.skip("not a git checkout")
    allowed = {
        *("framework", "configs", "examples", "tests", "scripts", "docs", "benchmarks", ".ci"),
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml", "mkdocs.yml"),
        *(".gitignore", ".pre-commit-config.yaml"),
    }
    assert {name.split("/")[0] for name in listed} <= allowed


def test_no_file_names_a_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:root|home|work|Users)/\w")
    for path in [*ROOT.glob("*.*"), *(file for folder in ("framework", "configs", "docs") for file in (ROOT / folder).rglob("*.*"))]:
        if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".yml", ".toml"}:
            assert not pattern.search(path.read_text()), path


@pytest.mark.parametrize("module", ["framework", "framework.errors", "framework.cli.main", "framework.cli.check"])
def test_these_are_imported_without_jax(module: str) -> None:
    program = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_can_be_had() -> None:
    import framework

    missing = [name for name in framework.__all__ if not hasattr(framework, name)]
    assert missing == []
