"""Event files read back with both of TensorBoard's loaders."""

import html
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import FrameworkError, RunError, TrainingError
from framework.monitor import TensorBoard, event_thread
from framework.monitor.tensorboard import code_block

Curve = list[tuple[int, float]]

# Logs steps with the number of the attempt as value, drains at "checkpoints", and dies without a word.
CHILD = """
import os, signal, sys
from framework.monitor import TensorBoard
directory, attempt, first_step, last_step = sys.argv[1], *map(int, sys.argv[2:])
board = TensorBoard(directory, first_step=first_step)
for step in range(first_step + 1, last_step + 1):
    board.scalars("train", step, {"loss": attempt})
    if step % 10 == 0:
        board.scalars("eval", step, {"loss": attempt})
board.drain()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_until_killed(directory: Path, attempt: int, first_step: int, last_step: int) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", CHILD, *map(str, (directory, attempt, first_step, last_step))]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(root)}, check=False, capture_output=True, text=True
    )
    assert result.returncode == -9, result.stderr


def event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*tfevents*"))


def read_events(file: Path) -> list[Any]:
    from tensorboard.backend.event_processing import event_file_loader

    return list(event_file_loader.LegacyEventFileLoader(str(file)).Load())


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "last record torn"])
def test_killed_and_resumed_run_is_one_curve_in_both_loaders(
    tmp_path: Path,
    torn: bool,
    python_curve: Callable[..., Curve],
    event_accumulator_curve: Callable[..., Curve],
    serve: Callable[[Path], AbstractContextManager[Any]],
) -> None:
    run_until_killed(tmp_path, attempt=1, first_step=0, last_step=45)
    if torn:
        (file,) = event_files(tmp_path / "train")
        os.truncate(file, file.stat().st_size - 7)
    board = TensorBoard(tmp_path, first_step=30)
    for step in range(31, 61):
        board.scalars("train", step, {"loss": 2})
        if step % 10 == 0:
            board.scalars("eval", step, {"loss": 2})
    board.close()

    train = [(step, 1.0 if step <= 30 else 2.0) for step in range(1, 61)]
    evaluation = [(step, 1.0 if step <= 30 else 2.0) for step in range(10, 61, 10)]
    assert python_curve(tmp_path, "train", "loss") == train
    assert python_curve(tmp_path, "eval", "loss") == evaluation
    assert event_accumulator_curve(tmp_path / "train", "loss") == train
    with serve(tmp_path) as server:
        assert server.curve("train", "loss") == train
        assert server.curve("eval", "loss") == evaluation
        assert sorted(server.get("runs")) == ["eval", "train"]


def test_run_killed_again_and_again_is_one_curve(
    tmp_path: Path, python_curve: Callable[..., Curve], serve: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    # The second attempt dies before its first checkpoint, so that the third starts where it did.
    run_until_killed(tmp_path, attempt=1, first_step=0, last_step=25)
    run_until_killed(tmp_path, attempt=2, first_step=20, last_step=55)
    run_until_killed(tmp_path, attempt=3, first_step=20, last_step=40)
    expected = [(step, 1.0 if step <= 20 else 3.0) for step in range(1, 41)]
    assert python_curve(tmp_path, "train", "loss") == expected
    with serve(tmp_path) as server:
        assert server.curve("train", "loss") == expected


def test_fresh_start_hides_everything_of_an_attempt_without_a_checkpoint(
    tmp_path: Path, python_curve: Callable[..., Curve], serve: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    for attempt in (1, 2):
        board = TensorBoard(tmp_path)
        for step in range(4):
            board.scalars("train", step, {"loss": attempt})
        board.close()
    expected = [(step, 2.0) for step in range(4)]
    assert python_curve(tmp_path, "train", "loss") == expected
    with serve(tmp_path) as server:
        assert server.curve("train", "loss") == expected


def test_resume_hides_stale_points_of_a_sub_run_before_it_is_written_again(
    tmp_path: Path, python_curve: Callable[..., Curve]
) -> None:
    run_until_killed(tmp_path, attempt=1, first_step=0, last_step=40)
    TensorBoard(tmp_path, first_step=20).close()
    assert python_curve(tmp_path, "eval", "loss") == [(10, 1.0), (20, 1.0)]


@given(logged=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_property_any_chain_of_attempts_is_one_curve(logged: list[int], tmp_path_factory: Any) -> None:
    from tensorboard.backend.event_processing import event_accumulator

    directory = tmp_path_factory.mktemp("chain")
    expected: dict[int, float] = {}
    first_step = 0
    for attempt, length in enumerate(logged):
        board = TensorBoard(directory, first_step=first_step)
        expected = {step: value for step, value in expected.items() if step <= first_step}
        for step in range(first_step + 1, first_step + length + 1):
            board.scalars("train", step, {"loss": attempt})
            expected[step] = float(attempt)
        board.close()
        first_step += length // 2  # the newest checkpoint of this attempt
    accumulator = event_accumulator.EventAccumulator(str(directory / "train"), size_guidance={"scalars": 0})
    accumulator.Reload()
    assert [(event.step, event.value) for event in accumulator.Scalars("loss")] == list(expected.items())


def test_writers_opened_in_one_second_never_empty_each_others_files(tmp_path: Path) -> None:
    boards = [TensorBoard(tmp_path) for _ in range(5)]
    for number, board in enumerate(boards):
        board.scalars("train", 1, {f"loss{number}": number})
    for board in boards:
        board.close()
    files = event_files(tmp_path / "train")
    assert [[value.tag for value in read_events(file)[-1].summary.value] for file in files] == [
        [f"loss{number}"] for number in range(5)
    ]


def test_file_sorts_last_even_if_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_curve: Callable[..., Curve]
) -> None:
    run_until_killed(tmp_path, attempt=1, first_step=0, last_step=9)
    (first,) = event_files(tmp_path / "train")
    with monkeypatch.context() as patch:
        patch.setattr("framework.monitor.event_file.time.time", lambda: 1000.0)
        board = TensorBoard(tmp_path, first_step=5)
        board.scalars("train", 6, {"loss": 2})
        board.close()
    assert event_files(tmp_path / "train")[0] == first
    assert python_curve(tmp_path, "train", "loss") == [(step, 1.0) for step in range(1, 6)] + [(6, 2.0)]


def test_values_of_a_step_are_one_event(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, clock=lambda: 12.5)
    board.scalars("train", 3, {f"value/{number}": number for number in range(20)})
    board.close()
    (file,) = event_files(tmp_path / "train")
    events = read_events(file)
    assert [event.WhichOneof("what") for event in events] == ["file_version", "session_log", "summary"]
    assert (events[1].step, events[2].step, events[2].wall_time) == (0, 3, 12.5)
    assert len(events[2].summary.value) == 20


@pytest.mark.parametrize(("first_step", "start"), [(0, 0), (30, 31)])
def test_session_start_step(tmp_path: Path, first_step: int, start: int) -> None:
    TensorBoard(tmp_path, first_step=first_step).close()
    (file,) = event_files(tmp_path / "train")
    assert read_events(file)[1].step == start


def test_values_read_back_as_written(tmp_path: Path, event_accumulator_curve: Callable[..., Curve]) -> None:
    import ml_dtypes

    board = TensorBoard(tmp_path)
    written = {
        "bf16": np.asarray(3.5, ml_dtypes.bfloat16),
        "int": 7,
        "tag with (spaces)": 0.5,
        "large": 1e300,
    }
    board.scalars("train", 1, {**written, "nan": float("nan"), "inf": np.float32("-inf")})
    board.close()

    def read(tag: str) -> float:
        return event_accumulator_curve(tmp_path / "train", tag)[0][1]

    assert [read(tag) for tag in written] == [3.5, 7.0, 0.5, math.inf]
    assert math.isnan(read("nan"))
    assert read("inf") == -math.inf


def test_drain_puts_everything_on_disk_while_open(
    tmp_path: Path, event_accumulator_curve: Callable[..., Curve]
) -> None:
    board = TensorBoard(tmp_path)
    for step in range(500):
        board.scalars("train", step, {"loss": step})
    board.drain()
    assert event_accumulator_curve(tmp_path / "train", "loss") == [(step, float(step)) for step in range(500)]
    board.close()


def test_points_appear_without_a_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(event_thread, "_FLUSH_SECONDS", 0.05)
    board = TensorBoard(tmp_path)
    (file,) = event_files(tmp_path / "train")
    size = file.stat().st_size
    board.scalars("train", 1, {"loss": 1})
    deadline = time.monotonic() + 20
    while file.stat().st_size == size and time.monotonic() < deadline:
        time.sleep(0.01)
    assert file.stat().st_size > size
    board.close()


def test_program_that_forgets_close_loses_nothing(
    tmp_path: Path, event_accumulator_curve: Callable[..., Curve]
) -> None:
    code = "import sys\nfrom framework.monitor import TensorBoard\nboard = TensorBoard(sys.argv[1])\n"
    code += "for step in range(300): board.scalars('train', step, {'loss': step})\nsys.exit(3)\n"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, check=False).returncode == 3
    assert len(event_accumulator_curve(tmp_path / "train", "loss")) == 300


def test_import_needs_neither_jax_nor_tensorboardx() -> None:
    code = "import sys, framework.monitor\n"
    code += "print([name for name in ('jax', 'tensorboardX', 'rich') if name in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    shown = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout
    assert shown == "[]\n"


def test_writer_thread_error_is_raised_by_drain_and_later_calls(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    (tmp_path / "eval").write_text("in the way")
    board.scalars("eval", 1, {"loss": 1.0})
    with pytest.raises(RunError, match=r"No TensorBoard event file can be created in .*eval \(.*monitor.tensorboard"):
        board.drain()
    with pytest.raises(RunError, match="eval"):
        board.scalars("train", 2, {"loss": 1.0})
    with pytest.raises(RunError, match="eval"):
        board.close()
    board.close()


def test_full_disk_names_file_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboardX.record_writer import RecordWriter

    def full(self: RecordWriter, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    board = TensorBoard(tmp_path)
    monkeypatch.setattr(RecordWriter, "write", full)
    board.scalars("train", 1, {"loss": 1.0})
    (file,) = event_files(tmp_path / "train")
    with pytest.raises(FrameworkError) as caught:
        board.drain()
    text = str(caught.value)
    for part in (str(file), "No space left on device", "start the same run again"):
        assert part in text
    assert "\n" not in text
    with pytest.raises(FrameworkError):
        board.close()


def test_directory_that_cannot_be_created_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="make it a folder this user may write to"):
        TensorBoard(tmp_path / "file" / "tensorboard")


def test_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.proto.event_pb2", None)
    with pytest.raises(RunError, match="pip install tensorboardX"):
        TensorBoard(tmp_path)


def test_use_after_close_raises_and_close_is_idempotent(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.scalars("train", 4, {"loss": 1.0})
    board.close()
    board.close()
    for use in (
        lambda: board.scalars("train", 5, {"loss": 1.0}),
        lambda: board.text("train", 5, "tag", "text"),
        lambda: board.hparams({}, {}),
        board.drain,
    ):
        with pytest.raises(TrainingError, match=r"after close\(\); .*first_step=4"):
            use()
    assert len(event_files(tmp_path / "train")) == 1


def test_step_that_goes_backwards_is_refused(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.scalars("train", 5, {"loss": 1.0})
    board.scalars("train", 5, {"accuracy": 1.0})
    board.scalars("eval", 3, {"loss": 1.0})
    with pytest.raises(TrainingError, match=r"'loss' of split 'train' was logged at step 4 after step 5"):
        board.scalars("train", 4, {"loss": 1.0})
    board.close()


@pytest.mark.parametrize("split", ["", "..", "a/b", "/eval"])
def test_split_that_is_no_folder_name_is_refused(tmp_path: Path, split: str) -> None:
    board = TensorBoard(tmp_path)
    with pytest.raises(TrainingError, match="cannot be the name of a TensorBoard sub-run"):
        board.scalars(split, 1, {"loss": 1.0})
    board.close()


def test_text_and_hyperparameters_in_tensorboard(
    tmp_path: Path, serve: Callable[[Path], AbstractContextManager[Any]]
) -> None:
    run = tmp_path / "run" / "tensorboard"
    board = TensorBoard(run)
    board.text("train", 0, "config", "seed: 0\nmodel:\n  width: 32 # <b>", code=True)
    board.text("train", 0, "note", "**bold**")
    board.scalars("train", 10, {"loss": 0.25})
    board.scalars("eval", 10, {"accuracy": 0.75})
    values = {
        "seed": 0,
        "model": {"width": 32, "bias": True, "sizes": [1, 2], "limit": math.inf, "name": None},
    }
    board.hparams(values, {"best/accuracy": 0.75})
    board.close()
    with serve(tmp_path) as server:
        assert server.settled(lambda: sorted(server.get("runs"))) == [
            "run/tensorboard",
            "run/tensorboard/eval",
            "run/tensorboard/train",
        ]
        texts = {
            tag: server.get("plugin/text/text", run="run/tensorboard/train", tag=f"{tag}/text_summary")[0]["text"]
            for tag in ("config", "note")
        }
        code = html.unescape(texts["config"])
        assert "<pre><code>seed: 0\nmodel:\n  width: 32 # <b>\n</code></pre>" in code
        assert "<strong>bold</strong>" in texts["note"]

        request = {"allowedStatuses": ["STATUS_SUCCESS"], "colParams": [], "startIndex": 0, "sliceSize": 10}
        query = {"request": json.dumps(request)}
        experiment = server.get("plugin/hparams/experiment", request="{}")
        groups = server.get("plugin/hparams/session_groups", **query)["sessionGroups"]
        assert [session["name"] for group in groups for session in group["sessions"]] == ["run/tensorboard"]
        assert groups[0]["hparams"] == {
            "seed": 0.0,
            "model.width": 32.0,
            "model.bias": True,
            "model.sizes": "[1, 2]",
            "model.limit": "inf",
            "model.name": "None",
        }
        assert {info["name"] for info in experiment["hparamInfos"]} == set(groups[0]["hparams"])
        metrics = {
            (value["name"].get("group", ""), value["name"]["tag"]): (value["trainingStep"], value["value"])
            for value in groups[0]["metricValues"]
        }
        assert metrics == {
            ("", "best/accuracy"): (10, 0.75),
            ("train", "loss"): (10, 0.25),
            ("eval", "accuracy"): (10, 0.75),
        }


@given(text=st.text(alphabet="`a \n", max_size=30))
def test_property_code_block_survives_any_backticks(text: str) -> None:
    import markdown

    shown = markdown.markdown(code_block(text), extensions=["markdown.extensions.fenced_code"])
    assert shown.startswith("<pre><code>") and shown.count("<pre>") == 1
    inside = html.unescape(shown.removeprefix("<pre><code>").removesuffix("</code></pre>"))
    # Markdown empties lines that hold nothing but spaces; everything else stays.
    assert re.sub("(?m)^ +$", "", inside).strip("\n") == re.sub("(?m)^ +$", "", text).strip("\n")
