import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from framework.cli import runs
from framework.errors import RunError


def _create(folder: str) -> str:
    return str(runs.create(folder, "same", "seed: 0\n", []).directory)


def _attempts(run: runs.Run) -> list[dict[str, object]]:
    return run.record()["attempts"]


def test_a_new_run_holds_its_configuration(tmp_path: Path) -> None:
    run = runs.create(tmp_path / "deep" / "runs", "digits", "seed: 7\n", ["name=a'b", 'x="c"'])
    assert run.directory.parent == tmp_path / "deep" / "runs" / "digits"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-[0-9a-f]{6}", run.directory.name)
    assert run.config_text() == "seed: 7\n"
    assert json.loads(
        "[" + ",".join((run.directory / "overrides.yaml").read_text().replace("- ", "").split("\n")[:2]) + "]"
    ) == [
        "name=a'b",
        'x="c"',
    ]
    record = run.record()
    assert record["id"] == run.directory.name and record["attempts"] == []
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"framework", "jax"} <= record["versions"].keys()


def test_names_need_no_quoting(tmp_path: Path) -> None:
    assert not re.search(r"[^A-Za-z0-9._-]", runs.create(tmp_path, "a", "", []).directory.name)


def test_processes_of_one_second_never_share_a_directory(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        made = pool.map(_create, [str(tmp_path)] * 16)
    assert len(set(made)) == 16


def test_a_directory_that_exists_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr(runs.secrets, "token_hex", lambda _: next(suffixes))
    first, second = (runs.create(tmp_path, "a", f"seed: {i}\n", []) for i in range(2))
    assert first.config_text() == "seed: 0\n" and second.config_text() == "seed: 1\n"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"the run directory cannot be made in .*choose another place: paths\.runs=DIR"):
        runs.create(tmp_path / "file", "a", "", [])


def test_an_attempt_is_recorded_from_its_start(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    with run.attempt() as attempt:
        (during,) = _attempts(run)
        assert during["exit"] == "running" and during["pid"] == os.getpid() and during["host"] == socket.gethostname()
        attempt.last_step = 12
    (after,) = _attempts(run)
    assert after["exit"] == "completed" and after["last_step"] == 12 and str(after["end"]) >= str(after["start"])


@pytest.mark.parametrize(
    ("error", "reason"), [(KeyboardInterrupt(), "interrupted"), (ValueError("bad"), "ValueError: bad")]
)
def test_why_an_attempt_ended(error: BaseException, reason: str, tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    with pytest.raises(type(error)), run.attempt():
        raise error
    assert _attempts(run)[0]["exit"] == reason


def test_attempts_add_up_their_changes(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    for overrides in ([], ["trainer.max_steps=8"], ["checkpoint.keep=1"]):
        with run.attempt(overrides):
            pass
    assert run.overrides() == ["trainer.max_steps=8", "checkpoint.keep=1"] and len(_attempts(run)) == 3


def test_a_run_that_is_being_trained_is_refused(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    message = f"is being trained by process {os.getpid()} on {socket.gethostname()}"
    with run.attempt(), pytest.raises(RunError, match=re.escape(message)), runs.Run(run.directory).attempt():
        pass
    assert len(_attempts(run)) == 1


def test_a_run_whose_process_was_killed_can_be_continued(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    program = (
        "import sys, time; from framework.cli import runs\nwith runs.Run(sys.argv[1]).attempt():\n  time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(run.directory)])
    try:
        deadline = time.monotonic() + 30
        while not _attempts(run) and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(RunError, match=f"process {child.pid} on"), run.attempt():
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with run.attempt():
        pass
    assert [one["exit"] for one in _attempts(run)] == ["killed", "completed"]


def test_a_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    (run.directory / "run.lock").write_text('{"host": "elsewhere", "pid": 1}')
    with (
        pytest.raises(RunError, match=r"process 1 on elsewhere.*if that process has ended, remove"),
        run.attempt(),
    ):
        pass


def test_messages_and_errors_are_in_the_log(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    with run.attempt():
        logging.getLogger("framework.train").info("step %d", 3)
        logging.getLogger("another.library").info("chatter")
        logging.getLogger("another.library").warning("careful")
    with pytest.raises(ValueError, match="bad"), run.attempt():
        raise ValueError("bad")
    logging.getLogger("framework.train").warning("afterwards")
    text = (run.directory / "train.log").read_text()
    assert "step 3" in text and "careful" in text and "ValueError: bad" in text and "Traceback" in text
    assert "chatter" not in text and "afterwards" not in text


def test_what_is_not_a_run(tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    with pytest.raises(
        RunError, match=f"is not a run: it has no run.json; the newest run inside is run={run.directory}"
    ):
        runs.Run(tmp_path)
    with pytest.raises(RunError, match=f"there is no directory .*the newest run beside it is run={run.directory}"):
        runs.Run(run.directory.parent / "nope")


@pytest.mark.parametrize("content", ["", "{", "[1"])
def test_a_damaged_record_is_told(content: str, tmp_path: Path) -> None:
    run = runs.create(tmp_path, "a", "", [])
    (run.directory / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        run.record()
    (run.directory / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"config\.yaml cannot be read"):
        run.config_text()
