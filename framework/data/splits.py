"""`Splits`: what a data set is trained on, chosen by and measured on."""

from dataclasses import dataclass, field
from typing import Any

from framework.data.batches import Batches


@dataclass(frozen=True)
class Splits:
    """The disjoint parts of a data set, and the facts that a model or a task is built from.

    Args:
        train: endless shuffled batches to train on.
        eval: finite batches to evaluate on during training, once through; padded and not shuffled.
        test: finite batches to measure the final result on, or None if the data has no such part.
        facts: numbers about the data by name, such as `num_classes`, `shape` (of one example) or
            `vocabulary_size`.

    Example:
        >>> from framework.data import digits
        >>> splits = digits()
        >>> splits.facts["num_classes"], splits.eval.epochs
        (10, 1)
    """

    train: Batches
    eval: Batches
    test: Batches | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
