"""Saving while training goes on, and what remains when saving fails or the process is killed."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.checkpoint import Checkpoints, checkpoints, snapshot
from framework.errors import CheckpointError


class Value(fw.Module):
    value: fw.State
    key: fw.State

    def __init__(self, value: float = 0.0) -> None:
        self.value = jnp.full(100_000, value)
        self.key = jax.random.split(jax.random.key(0), 1000)
        self.phase = "start"


def read(saved: Checkpoints, step: int | None = None) -> float:
    value = Value()
    saved.restore(value, step)
    assert len(set(np.asarray(value.value).tolist())) == 1
    return float(value.value[0])


@fw.jit
def add(value: Value) -> None:
    value.value = value.value + 1.0
    value.key = jax.random.wrap_key_data(jax.random.key_data(value.key) + 1)


def test_arrays_may_be_donated_and_overwritten_right_after_save(tmp_path: Path) -> None:
    value = Value(5.0)
    add(value)
    keys = np.array(jax.random.key_data(value.key))
    saved = Checkpoints(tmp_path)
    buffer = value.value
    saved.save(1, value, data={"position": [1]})
    del buffer
    for _ in range(5):
        before = value.value
        address = before.unsafe_buffer_pointer()
        del before
        add(value)
    assert value.value.unsafe_buffer_pointer() == address  # the buffers were reused in place
    value.phase = "later"
    saved.close()
    fresh = Value()
    saved.restore(fresh)
    assert np.all(np.asarray(fresh.value) == 6.0) and fresh.phase == "start"
    assert np.array_equal(jax.random.key_data(fresh.key), keys)


def test_save_returns_while_the_file_is_still_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    write = snapshot.write
    monkeypatch.setattr(checkpoints, "write", lambda *arguments: (go.wait(30), write(*arguments)))
    saved = Checkpoints(tmp_path)
    saved.save(1, Value(1.0))
    assert saved.latest() is None
    go.set()
    saved.wait()
    assert saved.latest() == 1
    saved.close()


def failing(*_: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("report", ["wait", "close", "save", "restore", "exit"])
def test_a_failed_save_is_reported_by_whatever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    saved = Checkpoints(tmp_path)
    saved.save(10, Value(1.0), wait=True)
    monkeypatch.setattr(checkpoints, "write", failing)
    saved.save(20, Value(2.0))
    reports: dict[str, Any] = {
        "wait": saved.wait,
        "close": saved.close,
        "save": lambda: saved.save(30, Value()),
        "restore": lambda: saved.restore(Value()),
        "exit": lambda: saved.__exit__(None, None, None),
    }
    with pytest.raises(CheckpointError) as caught:
        reports[report]()
    assert str(caught.value) == (
        f"the checkpoint of step 20 was not written to {tmp_path} (OSError: [Errno 28] No space left on "
        f"device). The checkpoint of step 10 is intact. Make room or choose a directory that can be written, "
        f"and save again: `checkpoints.save(20, module)`."
    )
    saved.close()  # reported once, not again
    assert [path.name for path in tmp_path.iterdir()] == ["10"]
    assert read(saved) == 1.0


def test_saving_goes_on_after_a_failure_was_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write", failing)
        with pytest.raises(CheckpointError, match="There is no older checkpoint"):
            saved.save(10, Value(), wait=True)
    saved.save(20, Value(2.0), wait=True)
    saved.close()
    saved.save(30, Value(3.0), wait=True)  # and after closing
    saved.close()
    assert read(saved) == 3.0


def test_a_directory_that_became_a_file_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    saved = Checkpoints(directory)
    saved.save(10, Value(1.0), wait=True)
    directory.rename(tmp_path / "moved")
    directory.write_text("")
    with pytest.raises(CheckpointError, match=r"step 20 was not written to .*run \(FileExistsError"):
        saved.save(20, Value(2.0), wait=True)
    saved.close()
    assert saved.latest() is None
    with pytest.raises(CheckpointError, match="is a file, and checkpoints need a directory"):
        Checkpoints(directory)


def test_a_directory_that_cannot_be_made_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    saved = Checkpoints(tmp_path / "file" / "run")
    with pytest.raises(CheckpointError, match=r"step 1 was not written to .* \(NotADirectoryError"):
        saved.save(1, Value())
    saved.close()


def test_a_directory_without_permission_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, who may run the tests, can write everywhere
    saved = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="PermissionError: no permission to write there"):
        saved.save(1, Value())
    saved.close()


SMALL_FILES = """
import resource, signal, sys
import jax.numpy as jnp
import framework as fw
from framework.errors import CheckpointError
class Value(fw.Module):
    value: fw.State
    def __init__(self, size):
        self.value = jnp.sin(jnp.arange(size, dtype=jnp.float32))
saved = fw.Checkpoints(sys.argv[1])
saved.save(1, Value(10), wait=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
saved.save(2, Value(100_000))
try:
    saved.close()
except CheckpointError as error:
    print(error, saved.latest())
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_full_disk_is_one_error_without_noise(tmp_path: Path) -> None:
    """A file size limit stands in for a full disk: TensorStore fails in the middle of the write."""
    result = run(SMALL_FILES, str(tmp_path))
    assert result.stderr == ""
    assert result.stdout.startswith(f"the checkpoint of step 2 was not written to {tmp_path} (ValueError: OUT_OF_RANGE")
    assert result.stdout.endswith("`checkpoints.save(2, module)`. 1\n")
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_orbax_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO), Checkpoints(tmp_path) as saved:
        saved.save(1, Value(), wait=True)
        saved.restore(Value())
    assert [record.name for record in caplog.records if not record.name.startswith("framework")] == []
    assert capfd.readouterr() == ("", "")


def test_no_thread_is_left_after_closing(tmp_path: Path) -> None:
    before = threading.active_count()
    saved = Checkpoints(tmp_path)
    saved.save(1, Value())
    saved.close()
    assert threading.active_count() == before


SAVE_FOREVER = """
import sys
import jax.numpy as jnp
import framework as fw
class Value(fw.Module):
    value: fw.State
    def __init__(self):
        self.value = jnp.zeros(100_000)
value = Value()
saved = fw.Checkpoints(sys.argv[1], keep=2)
if saved.latest() is not None:
    step = saved.restore(value).step
    assert (value.value == step).all(), value.value
else:
    step = 0
print("ready", step, flush=True)
while True:
    step += 1
    value.value = value.value + 1
    saved.save(step, value)
    print(step, flush=True)
"""


@pytest.mark.slow
def test_killing_the_process_at_any_moment_leaves_a_usable_step(tmp_path: Path) -> None:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    moments = random.Random(0)
    reached = 0
    for attempt in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        _, start = process.stdout.readline().split()
        assert int(start) >= reached
        submitted = 0
        while submitted < int(start) + 3:
            submitted = int(process.stdout.readline())
        time.sleep(moments.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        submitted = int(rest[-1]) if rest else submitted
        latest = Checkpoints(tmp_path).latest()
        assert latest is not None and submitted - 2 <= latest <= submitted + 1, (attempt, latest, submitted)
        reached = latest


def test_the_caller_is_held_for_the_copy_only(tmp_path: Path) -> None:
    class Many(fw.Module):
        leaves: dict[str, fw.Param]

        def __init__(self) -> None:
            self.leaves = {f"layer{index}.weight": jnp.full(1000, float(index)) for index in range(1000)}

    many = Many()
    with Checkpoints(tmp_path) as saved:
        saved.save(0, many, wait=True)
        begin = time.perf_counter()
        saved.save(1, many)
        held = time.perf_counter() - begin
        saved.wait()
        total = time.perf_counter() - begin
        begin = time.perf_counter()
        saved.restore(Many())
        logging.getLogger("framework.tests").info(
            "held %.3f s, total %.2f s, restore %.2f s", held, total, time.perf_counter() - begin
        )
    assert held < total / 4
