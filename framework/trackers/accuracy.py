# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Accuracy`: how often the largest logit is that of the label."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from framework.errors import ModuleError
from framework.module.fields import State
from framework.trackers.base import ShapeError, Tracker, as_weights, weighted_sum


class Accuracy(Tracker):
    """The fraction of examples whose largest logit is that of their label.

    Args:
        padding_label: a label that marks examples that do not count, such as -1; None if there is none.

    Example:
        >>> import jax.numpy as jnp
        >>> accuracy = Accuracy()
        >>> accuracy.update(jnp.array([[0.1, 0.9], [0.8, 0.2]]), jnp.array([1, 1]))
        >>> float(accuracy.compute())
        0.5
    """

    correct: State[Float[Array, ""]]
    count: State[Float[Array, ""]]

    def __init__(self, *, padding_label: int | None = None) -> None:
        self.padding_label = padding_label
        self.correct = jnp.zeros((), jnp.float32)
        self.count = jnp.zeros((), jnp.float32)

    def update(self, logits: ArrayLike, labels: ArrayLike, mask: ArrayLike | None = None) -> None:
        """Adds examples.

        Args:
            logits: array of shape `[batch, ..., classes]`.
            labels: integers of shape `[batch, ...]`.
            mask: 0 for examples that do not count, of the shape of the labels or of their leading axes; other numbers
                are weights.

        Raises:
            ShapeError: if the shapes do not fit.
            ModuleError: if the labels are no integers.

        Example:
            >>> import jax.numpy as jnp
            >>> accuracy = Accuracy(padding_label=-1)
            >>> accuracy.update(jnp.eye(3), jnp.array([0, 2, -1]))
            >>> float(accuracy.compute()), float(accuracy.count)
            (0.5, 2.0)
        """
        logits, labels = jnp.asarray(logits), jnp.asarray(labels)
        if logits.ndim == 0 or logits.shape[:-1] != labels.shape:
            raise ShapeError(
                f"Accuracy was given logits of shape {list(logits.shape)} and labels of shape {list(labels.shape)}, "
                f"but labels have the shape of the logits without the last axis. One-hot labels become labels with "
                f"`labels.argmax(-1)`."
            )
        if not jnp.issubdtype(labels.dtype, jnp.integer):
            raise ModuleError(
                f"Accuracy was given labels of type {labels.dtype}, but labels are the numbers of classes. Convert "
                f"them with `labels.astype(jnp.int32)`."
            )
        weights = as_weights(mask, labels.shape, type(self).__name__)
        if self.padding_label is not None:
            weights = jnp.where(labels == self.padding_label, 0, weights)
        self.correct = self.correct + weighted_sum(jnp.argmax(logits, axis=-1) == labels, weights, jnp.float32)
        self.count = self.count + weights.sum()

    def compute(self) -> jax.Array:
        """Returns the fraction, a scalar from 0 to 1; NaN if no example counted.

        Example:
            >>> float(Accuracy().compute())
            nan
        """
        return self.correct / self.count
