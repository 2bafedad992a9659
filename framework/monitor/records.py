"""The measurements of a run as text: `metrics.jsonl`, complete and greppable."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from framework.errors import RunError, TrainingError
from framework.monitor.values import to_floats, to_step

_RESERVED = ("step", "split", "time")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Records:
    r"""Writes one JSON object a line: `{"step": 50, "split": "train", "time": 1.7e9, "loss": 0.5}`.

    `time` is in seconds since 1970. Every other key is a metric: a number, or one of the strings "NaN",
    "Infinity" and "-Infinity", because JSON has no such numbers; `read_records` turns them back into floats.
    A line is handed to the operating system in one piece as soon as it is complete, so a killed process loses
    none.

    Example:
      >>> import tempfile
      >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
      >>> records = Records(path, clock=lambda: 10.0)
      >>> records.scalars("train", 50, {"loss": 0.5})
      >>> records.close()
      >>> path.read_text()
      '{"step": 50, "split": "train", "time": 10.0, "loss": 0.5}\n'
    """

    def __init__(
        self, path: str | os.PathLike[str], *, first_step: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        """Opens the file and removes what an earlier attempt wrote after the checkpoint of this one.

        Args:
          path: The file; created if missing, with its folder.
          first_step: Step of the checkpoint the run continues from: records of later steps are removed, and a
            last line that a killed process left half-written. 0 is a run that starts: all records are
            removed.
          clock: Returns the time of a record, in seconds since 1970.

        Raises:
          RunError: The file cannot be read or written, or holds something else than records.
        """
        self.path = Path(path)
        self._clock = clock
        self._file: BinaryIO | None = None
        first_step = to_step(first_step)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                _rewind(self.path, first_step)
            # Unbuffered: what scalars() wrote is out of this process when it returns.
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise RunError(
                f"The records of the run cannot be written to {self.path} ({error}); make it a file this "
                "user may write to, or switch records off with monitor.records=false."
            ) from error

    def scalars(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends one record.

        Args:
          split: "train", "eval" or another name.
          step: Number of completed optimizer updates.
          values: Metric to number (Python or NumPy number, or a 0-d array).

        Raises:
          TrainingError: A value is not one number, a metric is named "step", "split" or "time", or this is
            closed.
          RunError: The record could not be written.
        """
        file = self._open_file(f"values at step {step}")
        for name in _RESERVED:
            if name in values:
                raise TrainingError(
                    f"A metric of split {split!r} is called {name!r}, which every record already holds with "
                    f"its own meaning; give it another name, for example {split + '_' + name!r}."
                )
        record: dict[str, Any] = {"step": to_step(step), "split": split, "time": self._clock()}
        record.update({tag: _to_json(value) for tag, value in to_floats(values).items()})
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        try:
            # A raw file may take only a part, when the disk is full; the next call then raises.
            while line:
                line = line[file.write(line) :]
        except OSError as error:
            raise RunError(
                f"The record of step {step} could not be written to {self.path} ({error}); free some space "
                "or repair the disk, then start the same run again: it continues from its newest checkpoint "
                "and removes the half-written line."
            ) from error

    def drain(self) -> None:
        """Returns when everything written so far is on disk, which it is when `scalars` returns.

        Raises:
          TrainingError: This object is closed.
        """
        self._open_file("drain()")

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self, what: str) -> BinaryIO:
        if self._file is None:
            raise TrainingError(
                f"Records({str(self.path)!r}) got {what} after close(); write before it is closed, or open "
                f"the file again with Records({str(self.path)!r}, first_step=step)."
            )
        return self._file


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    r"""Reads a `metrics.jsonl`, also one that is being written.

    Args:
      path: The file that `Records` wrote.

    Returns:
      One dictionary a record, in the order of the file: "step" (int), "split" (str), "time" (float, seconds
      since 1970) and the metrics as floats, NaN and infinities included. A last line that is still
      half-written is left out.

    Raises:
      RunError: The file cannot be read or holds something else than records.

    Example:
      >>> import tempfile
      >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
      >>> line = '{"step": 1, "split": "eval", "time": 10.0, "loss": "Infinity"}'
      >>> _ = path.write_text(line + '\n{"step": 2, "spl')
      >>> read_records(path)
      [{'step': 1, 'split': 'eval', 'time': 10.0, 'loss': inf}]
    """
    path = Path(path)
    try:
        return [_from_json(record) for record, _ in _parse(path)]
    except OSError as error:
        raise RunError(
            f"The records {path} cannot be read ({error}); give the metrics.jsonl of a run directory."
        ) from error


def _to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _from_json(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _NON_FINITE.get(value, value) if isinstance(value, str) and key not in _RESERVED else value
        for key, value in record.items()
    }


def _parse(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yields each record with its line; a last line without line break that is no record is left out."""
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int) or not isinstance(record["split"], str):
                raise TypeError
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith(b"\n"):
                return
            raise RunError(
                f"Line {number} of {path} is not a record of a run: {line[:80]!r}; remove that line, or name "
                "the metrics.jsonl of a run directory."
            ) from error
        yield record, line.rstrip(b"\r\n") + b"\n"


def _rewind(path: Path, first_step: int) -> None:
    """Keeps the records up to a step; a kill meanwhile leaves the whole old file or the whole new one."""
    kept = b"".join(line for record, line in _parse(path) if first_step and record["step"] <= first_step)
    if kept == path.read_bytes():
        return
    replacement = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with replacement.open("wb") as file:
        file.write(kept)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(path)
