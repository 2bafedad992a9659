"""A progress display of plain lines, for files and batch systems, and the words it shares with the bar."""

import math
from collections.abc import Mapping
from typing import Protocol, TextIO

from framework.monitor.rate import Rate


class Display(Protocol):
    """What `Progress` draws with; times are in seconds."""

    def update(self, step: int, now: float, rate: Rate, new: Mapping[str, float], newest: Mapping[str, float]) -> None:
        """Takes a completed step at a time, with the values that came with it and the newest of all tags."""
        ...

    def message(self, text: str) -> None:
        """Shows a line of text."""
        ...

    def close(self, rate: Rate, newest: Mapping[str, float]) -> None:
        """Draws the last state and releases the stream."""
        ...

    def abandon(self) -> None:
        """Releases the stream after it failed, without writing to it."""
        ...


class Lines:
    """Plain lines, for streams that cannot move a cursor."""

    def __init__(self, stream: TextIO, total: int, interval: float, now: float) -> None:
        self._stream = stream
        self._total = total
        self._interval = interval
        self._shown_at = now

    def update(self, step: int, now: float, rate: Rate, new: Mapping[str, float], newest: Mapping[str, float]) -> None:
        if not new and now - self._shown_at < self._interval:
            return
        self._shown_at = now
        percent = f"({100 * step // self._total} %)" if self._total else ""
        parts = [
            f"step {step}/{self._total} {percent}".rstrip(),
            *describe_speed(rate),
            *describe_values(new),
        ]
        self.message(", ".join(parts))

    def message(self, text: str) -> None:
        # Flushed because a batch system's log is read while the run is alive.
        print(text, file=self._stream, flush=True)

    def close(self, rate: Rate, newest: Mapping[str, float]) -> None:
        pass

    def abandon(self) -> None:
        pass


def describe_speed(rate: Rate) -> list[str]:
    """Returns the rate and the time left as texts; nothing while they are unknown."""
    if math.isnan(rate.steps_per_second):
        return []
    minutes, seconds = divmod(int(rate.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return [f"{rate.steps_per_second:.3g} steps/s", f"{hours}:{minutes:02}:{seconds:02} left"]


def describe_values(values: Mapping[str, float]) -> list[str]:
    """Returns each value with its tag."""
    return [f"{tag} {value:.4g}" for tag, value in values.items()]
