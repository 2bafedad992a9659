"""How far a run is: a bar on a terminal, plain lines anywhere else."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO, cast

from framework.errors import ConfigError, TrainingError
from framework.monitor.lines import Display, Lines
from framework.monitor.rate import Rate
from framework.monitor.values import to_floats, to_step

Mode = Literal["auto", "rich", "plain", "off"]


class Progress:
    """Shows the step, rate, time left and newest values of a run.

    On a terminal this is a progress bar, redrawn at most ten times a second. Elsewhere (a file, a batch
    system) it is one line every few seconds and one for each update that brings values. Rate and time left
    leave out the first step, which mostly waits for the compiler. A display that breaks, such as a closed
    terminal, never stops a run.

    Example:
      >>> now = iter([0.0, 30.0, 32.0])
      >>> progress = Progress(10, mode="plain", stream=sys.stdout, clock=lambda: next(now))
      >>> progress.update(1)
      step 1/10 (10 %)
      >>> progress.update(5, {"loss": 0.25})
      step 5/10 (50 %), 2 steps/s, 0:00:02 left, loss 0.25
      >>> progress.close()
    """

    def __init__(
        self,
        total: int,
        *,
        start: int = 0,
        mode: Mode = "auto",
        stream: TextIO | None = None,
        interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Shows that the run is at its start.

        Args:
          total: Step at which the run ends.
          start: Step at which it starts: 0, or that of the checkpoint it continues from.
          mode: "rich" for the bar, "plain" for lines, "off" for nothing; "auto" takes the bar if the stream
            is a terminal and lines otherwise.
          stream: Where to write; standard error if None.
          interval: Longest time between two plain lines while steps complete, in seconds.
          clock: Returns a time in seconds.

        Raises:
          ConfigError: The mode is unknown.
        """
        # Programs without a console have no standard error at all.
        output = cast("TextIO | None", sys.stderr) if stream is None else stream
        if mode == "auto":
            terminal = output is not None and output.isatty() and os.environ.get("TERM") != "dumb"
            mode = "rich" if terminal else "plain"
        if mode not in ("rich", "plain", "off"):
            raise ConfigError(
                f"The progress display got the mode {mode!r}, which does not exist; write "
                "monitor.progress=auto, rich, plain or off."
            )
        self._clock = clock
        self._rate = Rate(total)
        self._values: dict[str, float] = {}
        self._closed = False
        self._display: Display | None = None
        if output is None or mode == "off":
            return
        if mode == "rich":
            # Imported here because runs in batch systems never need rich.
            from framework.monitor.bar import Bar

            self._display = Bar(output, total, start, clock())
        else:
            self._display = Lines(output, total, interval, clock())

    def update(self, step: int, values: Mapping[str, Any] | None = None) -> None:
        """Reports completed steps; cheap enough for every step.

        Args:
          step: Number of completed optimizer updates.
          values: Newest values to show (tag to number), or None if there are none since the last call.

        Raises:
          TrainingError: A value is not one number, or the display is closed.
        """
        if self._closed:
            raise TrainingError(
                f"The progress display got step {step} after close(); report steps before it is closed, or "
                f"open another one with Progress(total, start={step})."
            )
        now = self._clock()
        self._rate.update(to_step(step), now)
        new_values = to_floats(values or {})
        self._values.update(new_values)
        self._show(lambda display: display.update(step, now, self._rate, new_values, self._values))

    def message(self, text: str) -> None:
        """Shows a line of text above the bar, or as a line among the others."""
        self._show(lambda display: display.message(text))

    def close(self) -> None:
        """Draws the last state and gives the terminal back; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._show(lambda display: display.close(self._rate, self._values))

    def _show(self, draw: Callable[[Display], None]) -> None:
        if self._display is None:
            return
        try:
            draw(self._display)
        except OSError:
            # The terminal was closed or the pipe has no reader any more. Nobody is left to be told, and hours
            # of training must not end for it.
            with contextlib.suppress(OSError):
                self._display.abandon()
            self._display = None
