"""Checks of a batch on the host, for faults that a device would not report."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from framework.errors import DataError


def check_labels(batch: Mapping[str, Any], key: str, num_classes: int, batch_number: int) -> None:
    """Refuses labels that are not the number of a class, which JAX would not report.

    Args:
        batch: arrays by name.
        key: name of the labels, integers of shape `[batch, ...]`.
        num_classes: number of classes; valid labels are `0 .. num_classes - 1`, so -1 is refused, too.
        batch_number: count of the batch, for the message.

    Raises:
        DataError: if there are no such labels, if they are not integers, or if one is out of range.

    Example:
        >>> import numpy as np
        >>> check_labels({"label": np.array([0, 2])}, "label", num_classes=3, batch_number=0)
    """
    if key not in batch:
        raise DataError(
            f'batch {batch_number} has no "{key}", where its labels should be; it has {sorted(batch)}. '
            f'Return the labels under that name from the gather function, as in `{{"{key}": '
            f"labels[indices]}}`."
        )
    labels = np.asarray(batch[key])
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(
            f'"{key}" in batch {batch_number} is of type {labels.dtype}, but labels are the numbers of '
            f"classes. Convert them with `labels.astype(np.int32)`; a one-hot row becomes a label "
            f"with `labels.argmax(-1)`."
        )
    # Two reductions are much cheaper than the search, which is only needed for the message.
    if labels.size == 0 or (labels.min() >= 0 and labels.max() < num_classes):
        return
    place = np.argwhere((labels < 0) | (labels >= num_classes))[0]
    inside = f", position {place[1:].tolist()}" if labels.ndim > 1 else ""
    raise DataError(
        f'"{key}" in batch {batch_number} is {labels[tuple(place)]} in row {place[0]}{inside}, but there are '
        f"{num_classes} classes, 0 to {num_classes - 1}. JAX would take another class or "
        f"return NaN instead of failing. Set `num_classes` to one more than the largest label, or number the "
        f"classes from 0; rows without a label are left "
        f'out of the loss with a "mask" of 0 and any valid label.'
    )
