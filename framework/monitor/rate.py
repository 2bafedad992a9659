"""How fast a run goes and how long it will take."""

import math


class Rate:
    """Estimates steps a second and the time left.

    The first step does not count, because it mostly waits for the compiler.

    Example:
      >>> rate = Rate(total=10)
      >>> rate.update(1, 100.0)
      >>> rate.update(5, 102.0)
      >>> rate.steps_per_second, rate.seconds_left
      (2.0, 2.5)
    """

    def __init__(self, total: int) -> None:
        """Begins with nothing known.

        Args:
          total: Step at which the run ends.
        """
        self._total = total
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)

    def update(self, step: int, now: float) -> None:
        """Takes the number of completed steps at a time in seconds; the first call starts the clock."""
        if self._first is None:
            self._first = (step, now)
        self._last = (step, now)

    @property
    def steps_per_second(self) -> float:
        """Average over all steps but the first; NaN while there is no second one."""
        if self._first is None:
            return math.nan
        steps, seconds = (last - first for last, first in zip(self._last, self._first, strict=True))
        return steps / seconds if steps > 0 and seconds > 0 else math.nan

    @property
    def seconds_left(self) -> float:
        """Time to the last step at this rate; NaN while the rate is unknown."""
        return max(0, self._total - self._last[0]) / self.steps_per_second
