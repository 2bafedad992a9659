"""Takes turns between several functions and compares medians, since machines are noisy and drift."""

import statistics
import time
from collections.abc import Callable, Mapping


def compare(functions: Mapping[str, Callable[[], object]], *, calls: int, rounds: int = 15) -> dict[str, float]:
    """Returns for each function the median time of a call, in microseconds, and prints ratios to the first.

    Args:
        functions: what to time, by name; called once before, for compilation.
        calls: number of calls in a row.
        rounds: number of turns.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(3):
            function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            times[name].append((time.perf_counter() - start) / calls * 1e6)
    first = next(iter(functions))
    for name, values in times.items():
        ratio = statistics.median(value / base for value, base in zip(values, times[first], strict=True))
        print(f"  {name:44s} {statistics.median(values):10.1f} us   ratio {ratio:6.3f}", flush=True)
    return {name: statistics.median(values) for name, values in times.items()}
