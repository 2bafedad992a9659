"""Every Python block in README.md and docs/ runs; the blocks of a file share their names, in order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Why this one is no error is said in pyproject.toml.
HALF_AN_ENTRY = "ignore:Error reading persistent compilation cache entry:UserWarning"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_blocks_run(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "blocks.py"
    program.write_text("\n".join(blocks(page, "python")))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", HALF_AN_ENTRY, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], ids=lambda page: page.name)
def test_the_shell_blocks_parse(page: Path) -> None:
    for text in blocks(page, "bash"):
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


COMMANDS = [
    line
    for page in PAGES
    for text in blocks(page, "bash")
    for line in text.splitlines()
    if line.startswith("framework train") and "their_module" not in line
]


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_the_training_commands_have_a_valid_configuration(command: str) -> None:
    words = command.split("#")[0].split()[1:]
    words = [*words, "--cfg", "job"] if "--cfg" not in words else words
    done = subprocess.run([sys.executable, "-m", "framework", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_files_that_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:tests|docs|benchmarks|scripts|configs)/[\w./]*)`", (ROOT / "README.md").read_text()):
        assert (ROOT / name).exists(), name
