"""Sends what a run measures to everything that keeps or shows it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from framework.monitor.progress import Progress
from framework.monitor.values import to_floats, to_step
from framework.monitor.writer import TextWriter, Writer


class Monitor:
    """Passes values to several writers and to the progress display.

    All writers get their turn even if one fails: the first error is raised after the last of them.

    Example:
      >>> import tempfile
      >>> from framework.monitor import Records, read_records
      >>> path = tempfile.mkdtemp() + "/metrics.jsonl"
      >>> monitor = Monitor([Records(path)])
      >>> monitor.scalars("train", 1, {"loss": 0.5})
      >>> monitor.close()
      >>> read_records(path)[0]["loss"]
      0.5
    """

    def __init__(self, writers: Sequence[Writer], progress: Progress | None = None) -> None:
        """Joins writers and a display; `close` closes all of them.

        Args:
          writers: Each gets all values, in this order.
          progress: The display, or None for a run that shows nothing.
        """
        self.writers = tuple(writers)
        self.progress = progress

    def scalars(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes and shows the values of one step.

        Args:
          split: "train", "eval" or another name; the display shows its values as "eval/loss", those of
            "train" as "loss".
          step: Number of completed optimizer updates.
          values: Tag to number (Python or NumPy number, or a 0-d array).

        Raises:
          TrainingError: A value is not one number.
          RunError: A writer failed.
        """
        # Converted once for all: reading a value can mean waiting for a device.
        step, numbers = to_step(step), to_floats(values)
        self._each([lambda writer=writer: writer.scalars(split, step, numbers) for writer in self.writers])
        if self.progress is not None and numbers:
            prefix = "" if split == "train" else f"{split}/"
            self.progress.update(step, {f"{prefix}{tag}": number for tag, number in numbers.items()})

    def text(self, split: str, step: int, tag: str, text: str, *, code: bool = False) -> None:
        """Writes a text, markdown or (with `code`) to be shown letter by letter, to writers that keep texts.

        Args:
          split: "train", "eval" or another name.
          step: Number of completed optimizer updates.
          tag: Name of the text.
          text: Markdown, or any text if `code` is set.
          code: Shows the text with its line breaks, as a code block.

        Raises:
          RunError: A writer failed.
        """
        self._each([lambda writer=writer: writer.text(split, step, tag, text, code=code) for writer in self._texts()])

    def hparams(self, values: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Writes the hyperparameters of the run to the writers that keep them.

        Args:
          values: Hyperparameters, may be nested.
          metrics: Tag to number: results to show beside them; may be empty.

        Raises:
          TrainingError: A metric is not one number.
          RunError: A writer failed.
        """
        self._each([lambda writer=writer: writer.hparams(values, metrics) for writer in self._texts()])

    def update(self, step: int) -> None:
        """Shows that steps are complete; cheap enough for every step."""
        if self.progress is not None:
            self.progress.update(step)

    def message(self, text: str) -> None:
        """Shows a line of text."""
        if self.progress is not None:
            self.progress.message(text)

    def drain(self) -> None:
        """Returns when everything written so far is on disk.

        Call it before a checkpoint is declared complete, so that no value is missing after a resume from it.

        Raises:
          RunError: A writer failed.
        """
        self._each([writer.drain for writer in self.writers])

    def close(self) -> None:
        """Drains and closes the display and all writers; a second call does nothing.

        Raises:
          RunError: A writer failed.
        """
        # The display first: it gives the terminal back, so that an error prints below the bar.
        display = [] if self.progress is None else [self.progress.close]
        self._each([*display, *(writer.close for writer in self.writers)])

    def _texts(self) -> list[TextWriter]:
        return [writer for writer in self.writers if isinstance(writer, TextWriter)]

    def _each(self, actions: Sequence[Callable[[], None]]) -> None:
        """Runs all actions; raises the first error afterwards, with the others as notes."""
        first: Exception | None = None
        for action in actions:
            try:
                action()
            except Exception as error:
                if first is None:
                    first = error
                else:
                    first.add_note(f"After it, another writer failed: {error}")
        if first is not None:
            raise first
