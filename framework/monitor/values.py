"""What a logged value may be: one real number under a tag, at a step."""

import math
import numbers
import operator
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from framework.errors import TrainingError


def to_float(tag: str, value: Any) -> float:
    """Converts one logged value to a Python float.

    Args:
      tag: Name of the metric; used in the error only.
      value: A Python or NumPy number, or a 0-d array (NumPy, JAX) of a real dtype, bfloat16 included.

    Returns:
      The value as float64. NaN and infinities pass through.

    Raises:
      TrainingError: The value is not one real number.

    Example:
      >>> to_float("loss", np.float32(0.5))
      0.5
    """
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            # An integer beyond 1e308, which every other number type would have made infinite.
            return -math.inf if value < 0 else math.inf
    array = np.asarray(value)
    if array.ndim != 0:
        raise TrainingError(
            f"The logged value {tag!r} has shape {array.shape}, but a curve needs one number for each step; "
            f"reduce it before it is logged, for example {{{tag!r}: value.mean()}}."
        )
    # NumPy would read None as NaN and "3.5" as 3.5: a mistake of the caller must not become a point of a
    # curve. Kind V holds the dtypes of ml_dtypes (bfloat16, float8), which NumPy does not know.
    if array.dtype.kind in "biufV":
        try:
            return float(np.asarray(array, dtype=np.float64))
        except (TypeError, ValueError):
            pass
    raise TrainingError(
        f"The logged value {tag!r} is {reprlib.repr(value)} of type {type(value).__name__}, which is not a "
        f"real number; log a float, an int or a 0-d array, for example {{{tag!r}: float(value)}}."
    )


def to_floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Converts all values that are logged at one step, in the order given.

    Args:
      values: Tag to number, see `to_float`.

    Returns:
      Tag to Python float.

    Raises:
      TrainingError: A value is not one real number; the error names its tag.

    Example:
      >>> to_floats({"loss": np.asarray(0.25), "rank": 3})
      {'loss': 0.25, 'rank': 3.0}
    """
    return {tag: to_float(tag, value) for tag, value in values.items()}


def to_step(step: Any) -> int:
    """Converts a step number to a Python int.

    Args:
      step: Number of completed optimizer updates: an int, a NumPy integer or a 0-d integer array, at least 0.

    Returns:
      The step as a Python int.

    Raises:
      TrainingError: The step is no integer or is negative.

    Example:
      >>> to_step(np.int32(7))
      7
    """
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise TrainingError(
            f"Values were logged at step {step!r}, but a step is the number of completed optimizer updates, "
            "an integer from 0 up; write int(step)."
        )
    return number
