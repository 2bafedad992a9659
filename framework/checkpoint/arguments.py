"""What a caller passes besides the module: the number of the step, and the state of the loop and its data."""

import operator
from collections.abc import Mapping
from typing import Any

from framework.errors import CheckpointError
from framework.module.codec import encode, opaque_parts


def step_number(step: Any) -> int:
    """Returns a step as a Python int.

    Raises:
        CheckpointError: if it is no whole number from 0 on.
    """
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise CheckpointError(
            f"a checkpoint was asked for step {step!r}, and steps are whole numbers from 0 on. Pass the "
            f"number of updates that are done: `checkpoints.save(200, module)`."
        )
    return number


def encode_state(name: str, state: Mapping[Any, Any] | None) -> Any:
    """Returns the JSON form of the state of a loop or of its data.

    Args:
        name: the argument that it was passed as.
        state: the state; None is an empty one.

    Raises:
        CheckpointError: if a part of it has no JSON form.
    """
    encoded = encode(dict(state or {}))
    opaque = opaque_parts(encoded)
    if opaque:
        raise CheckpointError(
            f"nothing was saved, because {name}= holds {opaque[0]}, which has no JSON form. Pass numbers, "
            f"strings, and lists, tuples and dicts of them, as in `checkpoints.save(step, module, "
            f"{name}={{'position': 640}})`."
        )
    return encoded
