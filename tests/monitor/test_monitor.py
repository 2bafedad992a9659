"""The fan-out: everybody gets everything once, and one failure does not silence the others."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework.errors import RunError, TrainingError
from framework.monitor import Monitor, Progress, Records, TensorBoard, TextWriter, Writer, read_records


class Kept:
    def __init__(self, error: str | None = None) -> None:
        self.calls: list[Any] = []
        self._error = error

    def _take(self, *call: Any) -> None:
        self.calls.append(call)
        if self._error:
            raise RunError(self._error)

    def scalars(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        self._take("scalars", split, step, dict(values))

    def drain(self) -> None:
        self._take("drain")

    def close(self) -> None:
        self._take("close")


def test_writers_and_display_get_converted_values(tmp_path: Path) -> None:
    stream, kept = io.StringIO(), Kept()
    records = Records(tmp_path / "metrics.jsonl")
    monitor = Monitor([kept, records], Progress(10, mode="plain", stream=stream))
    monitor.scalars("train", np.int64(2), {"loss": np.asarray(0.5, np.float32)})
    monitor.scalars("eval", 2, {"loss": 0.75})
    monitor.update(3)
    monitor.message("saved")
    monitor.drain()
    monitor.close()
    assert kept.calls == [
        ("scalars", "train", 2, {"loss": 0.5}),
        ("scalars", "eval", 2, {"loss": 0.75}),
        ("drain",),
        ("close",),
    ]
    assert [(r["split"], r["loss"]) for r in read_records(records.path)] == [("train", 0.5), ("eval", 0.75)]
    shown = stream.getvalue().splitlines()
    assert shown == ["step 2/10 (20 %), loss 0.5", "step 2/10 (20 %), eval/loss 0.75", "saved"]


def test_bad_value_reaches_no_writer() -> None:
    kept = Kept()
    with pytest.raises(TrainingError, match="'loss' has shape"):
        Monitor([kept]).scalars("train", 1, {"loss": np.zeros(3)})
    assert kept.calls == []


@pytest.mark.parametrize("method", ["drain", "close"])
def test_all_writers_get_their_turn_and_the_first_error_is_raised(method: str) -> None:
    writers = [Kept(), Kept("first"), Kept("second"), Kept()]
    with pytest.raises(RunError, match="^first") as caught:
        getattr(Monitor(writers), method)()
    assert [writer.calls for writer in writers] == [[(method,)]] * 4
    assert caught.value.__notes__ == ["After it, another writer failed: second"]


def test_texts_go_to_the_writers_that_keep_them(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import event_accumulator

    board, kept = TensorBoard(tmp_path), Kept()
    assert isinstance(board, TextWriter) and not isinstance(kept, TextWriter)
    writers: list[Writer] = [kept, board]
    monitor = Monitor(writers)
    monitor.text("train", 3, "config", "seed: 0", code=True)
    monitor.hparams({"seed": 0}, {"accuracy": 0.5})
    monitor.close()
    accumulator = event_accumulator.EventAccumulator(str(tmp_path / "train"))
    accumulator.Reload()
    (event,) = accumulator.Tensors("config/text_summary")
    assert (event.step, event.tensor_proto.string_val[0]) == (3, b"```\nseed: 0\n```")
    root = event_accumulator.EventAccumulator(str(tmp_path))
    root.Reload()
    assert root.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"
    assert [event.value for event in root.Scalars("accuracy")] == [0.5]
    assert kept.calls == [("close",)]


def test_without_a_display_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor([])
    monitor.scalars("train", 1, {"loss": 0.5})
    monitor.update(2)
    monitor.message("hello")
    monitor.close()
    assert capsys.readouterr() == ("", "")
