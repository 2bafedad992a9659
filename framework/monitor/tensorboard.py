"""Curves, texts and hyperparameters of a run for TensorBoard."""

import importlib
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from framework.errors import TrainingError
from framework.monitor.event_thread import EventThread
from framework.monitor.values import to_float, to_floats, to_step

_SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class TensorBoard:
    """Writes a run for TensorBoard; each split is a sub-run, so that a tag of all splits shares one chart.

    A run that was killed and goes on from a checkpoint reads as one that never stopped, in both of
    TensorBoard's loaders: each step once and in order. That needs `first_step`, and a `drain()` before each
    checkpoint is declared complete. Values are stored as float32, NaN and infinities included. Of a longer
    curve TensorBoard shows a random 1000 points unless it is started with, for example,
    `--samples_per_plugin scalars=100000`.

    Example:
      >>> import tempfile
      >>> board = TensorBoard(tempfile.mkdtemp())
      >>> board.scalars("train", 1, {"loss": 0.5, "accuracy": 0.8})
      >>> board.scalars("eval", 1, {"loss": 0.6})
      >>> board.drain()
      >>> board.close()
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        first_step: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the directory.

        Args:
          directory: Folder of the sub-runs; created if missing.
          first_step: Step of the checkpoint the run continues from; 0 for a run that starts. Points of an
            earlier attempt are hidden after this step, or all of them if it is 0.
          clock: Returns the time of an event, in seconds since 1970.

        Raises:
          RunError: A file cannot be created, or tensorboardX is not installed.
        """
        self.directory = Path(directory)
        self._clock = clock
        self._thread = EventThread(self.directory, to_step(first_step))
        self._events: Any = importlib.import_module("tensorboardX.proto.event_pb2")
        self._summary: Any = importlib.import_module("tensorboardX.summary")
        self._steps: dict[tuple[str, str], int] = {}
        self._newest_step = to_step(first_step)

    def scalars(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes all values of one step as one event.

        Args:
          split: Name of the sub-run: "train", "eval" or any other folder name.
          step: Number of completed optimizer updates; never smaller than the last one of the same tag.
          values: Tag to number (Python or NumPy number, or a 0-d array).

        Raises:
          TrainingError: A value is not one number, the step goes backwards, or this object is closed.
          RunError: An earlier event could not be written.
        """
        self._check_open(f"scalars at step {step}")
        _check_split(split)
        step = to_step(step)
        numbers = to_floats(values)
        if not numbers:
            return
        for tag in numbers:
            last = self._steps.get((split, tag), 0)
            # Not a matter of taste: TensorBoard's default loader answers a smaller step by deleting all later
            # points.
            if step < last:
                raise TrainingError(
                    f"The value {tag!r} of split {split!r} was logged at step {step} after step {last}, and "
                    f"TensorBoard would drop all points from step {step} on; log in the order of the steps, "
                    f"or give late results a split of their own, as in scalars({split + '_late'!r}, step, "
                    "values)."
                )
        self._steps.update({(split, tag): step for tag in numbers})
        self._newest_step = max(self._newest_step, step)
        self._put_scalars(split, step, numbers)

    def text(self, split: str, step: int, tag: str, text: str, *, code: bool = False) -> None:
        """Writes a text, which TensorBoard shows as markdown.

        Args:
          split: Name of the sub-run.
          step: Number of completed optimizer updates.
          tag: Name of the text.
          text: Markdown; or any text if `code` is set.
          code: Shows the text letter by letter with its line breaks, as a markdown code block.

        Raises:
          TrainingError: This object is closed or the split is no folder name.
          RunError: An earlier event could not be written.
        """
        self._check_open(f"the text {tag!r}")
        _check_split(split)
        summary = self._summary.text(tag, code_block(text) if code else text)
        self._put(split, to_step(step), summary)

    def hparams(self, values: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Writes the row of this run in TensorBoard's table of hyperparameters.

        The row belongs to the directory itself and takes in all its sub-runs, so no further run appears in
        the list; the last points of all their curves are its metrics when TensorBoard is started above the
        directory.

        Args:
          values: Hyperparameters; nested mappings become dotted names, lists and other objects become text.
          metrics: Tag to number: results to show beside them, written at the newest step; may be empty.

        Raises:
          TrainingError: A metric is not one number, or this object is closed.
          RunError: An earlier event could not be written.
        """
        self._check_open("hyperparameters")
        results = to_floats(metrics)
        # The experiment summary is left out on purpose: TensorBoard would take the columns of its table from
        # the one of the first run it finds, and hide every hyperparameter that only other runs have.
        _, start, end = self._summary.hparams(_flatten(values), {})
        self._put(".", 0, start)
        self._put(".", 0, end)
        if results:
            self._put_scalars(".", self._newest_step, results)

    def drain(self) -> None:
        """Returns when everything written so far is on disk.

        Raises:
          RunError: An event could not be written; the error names the file.
          TrainingError: This object is closed.
        """
        self._check_open("drain()")
        self._thread.drain()

    def close(self) -> None:
        """Drains and closes all files; a second call does nothing.

        Raises:
          RunError: An event could not be written; the error names the file.
        """
        self._thread.close()

    def _check_open(self, what: str) -> None:
        if self._thread.closed:
            raise TrainingError(
                f"TensorBoard({str(self.directory)!r}) got {what} after close(); write before it is closed, "
                f"or open another one with TensorBoard({str(self.directory)!r}, "
                f"first_step={self._newest_step})."
            )

    def _put_scalars(self, sub_run: str, step: int, numbers: Mapping[str, float]) -> None:
        value = self._summary.Summary.Value
        entries = [value(tag=tag, simple_value=number) for tag, number in numbers.items()]
        self._put(sub_run, step, self._summary.Summary(value=entries))

    def _put(self, sub_run: str, step: int, summary: Any) -> None:
        self._thread.put(sub_run, self._events.Event(wall_time=self._clock(), step=step, summary=summary))


def code_block(text: str) -> str:
    """Wraps a text so that markdown shows it letter by letter.

    Args:
      text: Any text, also one that holds code blocks itself.

    Returns:
      A markdown code block.

    Example:
      >>> print(code_block("seed: 0"))
      ```
      seed: 0
      ```
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _check_split(split: str) -> None:
    if not _SPLIT.fullmatch(split):
        raise TrainingError(
            f"The split {split!r} cannot be the name of a TensorBoard sub-run; use letters, digits, '_', '-' "
            "and '.', for example 'eval'."
        )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, bool | float | str]:
    """Turns nested hyperparameters into dotted names."""
    flat: dict[str, bool | float | str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(cast("Mapping[str, Any]", value), f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = _cell(value)
    return flat


def _cell(value: object) -> bool | float | str:
    """Turns a hyperparameter into one of the types that TensorBoard's table knows."""
    if isinstance(value, np.generic):
        value = cast("object", value.item())
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        number = to_float("hyperparameter", value)
        # The table is sent as JSON, which has no NaN and no infinities: those become text.
        return number if math.isfinite(number) else str(value)
    return str(value)
