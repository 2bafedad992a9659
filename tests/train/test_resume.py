"""Promise 9: a run that is killed and resumed ends with the bits of one that was not."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "resume_program.py"


def run(directory: Path, name: str, max_steps: int, kill_at: int = 0) -> subprocess.CompletedProcess[str]:
    result = directory.parent / f"{name}.npz"
    command = [sys.executable, str(PROGRAM), str(directory), str(result), str(max_steps), str(kill_at)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def leaves(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return dict(stored)


@pytest.mark.slow
def test_sixty_steps_equal_thirty_a_kill_and_thirty_more(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", "straight", 60)
    assert straight.returncode == 0, straight.stderr
    killed = run(tmp_path / "resumed", "killed", 60, kill_at=35)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed.npz").exists()
    resumed = run(tmp_path / "resumed", "resumed", 60)
    assert resumed.returncode == 0, resumed.stderr
    expected, actual = leaves(tmp_path / "straight.npz"), leaves(tmp_path / "resumed.npz")
    assert expected.keys() == actual.keys()
    assert int(actual["step"]) == 60
    for name, value in expected.items():
        assert value.dtype == actual[name].dtype
        assert value.tobytes() == actual[name].tobytes(), name


@pytest.mark.slow
def test_thirty_steps_and_thirty_more_equal_sixty(tmp_path: Path) -> None:
    for name, steps in (("straight", 60), ("parts", 30), ("parts", 60)):
        finished = run(tmp_path / name, name, steps)
        assert finished.returncode == 0, finished.stderr
    expected, actual = leaves(tmp_path / "straight.npz"), leaves(tmp_path / "parts.npz")
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        assert value.tobytes() == actual[name].tobytes(), name
