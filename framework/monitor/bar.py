"""A progress bar for terminals."""

from collections.abc import Mapping
from typing import TextIO

import rich.console
import rich.progress

from framework.monitor.lines import describe_speed, describe_values
from framework.monitor.rate import Rate

# Ten pictures a second look fluent; drawing each of thousands of steps would cost more than the steps.
_REDRAW_SECONDS = 0.1


class _Console(rich.console.Console):
    def on_broken_pipe(self) -> None:
        # Rich would end the process here. It calls this while it handles the error.
        raise


class Bar:
    """A bar that is redrawn in place."""

    def __init__(self, stream: TextIO, total: int, start: int, now: float) -> None:
        self._console = _Console(file=stream, force_terminal=True)
        # Drawn by update() alone: a second thread that draws on its own would compete for the interpreter.
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn("step {task.completed:.0f}/{task.total:.0f}", markup=False),
            rich.progress.BarColumn(bar_width=30),
            rich.progress.TextColumn("{task.description}", markup=False),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("compiling the first step", total=total, completed=start)
        self._step = start
        self._shown_at = now
        self._progress.start()
        self._progress.refresh()

    def update(self, step: int, now: float, rate: Rate, new: Mapping[str, float], newest: Mapping[str, float]) -> None:
        self._step = step
        if now - self._shown_at >= _REDRAW_SECONDS:
            self._shown_at = now
            self._draw(rate, newest)

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self, rate: Rate, newest: Mapping[str, float]) -> None:
        self._draw(rate, newest)
        self._progress.stop()

    def abandon(self) -> None:
        # Rich has put itself before sys.stdout and sys.stderr; it must step aside without writing.
        self._console.quiet = True
        self._progress.stop()

    def _draw(self, rate: Rate, newest: Mapping[str, float]) -> None:
        description = ", ".join([*describe_speed(rate), *describe_values(newest)])
        self._progress.update(self._task, completed=self._step, description=description)
        self._progress.refresh()
