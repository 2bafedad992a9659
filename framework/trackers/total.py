# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Sum`: the sum of all values."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Shaped

from framework.module.fields import State
from framework.trackers.base import Tracker, as_weights, weighted_sum


class Sum(Tracker):
    """The sum of all values, each times its weight.

    Args:
        dtype: dtype of the sum; with an integer, values and weights are whole numbers and the sum is exact.

    Example:
        >>> import jax.numpy as jnp
        >>> total = Sum()
        >>> total.update(jnp.array([1.0, 2.0]))
        >>> total.update(3.0)
        >>> float(total.compute())
        6.0
    """

    total: State[Shaped[Array, ""]]

    def __init__(self, dtype: Any = jnp.float32) -> None:
        self.total = jnp.zeros((), dtype)

    @property
    def dtype(self) -> Any:
        """The dtype of the sum.

        Example:
            >>> import jax.numpy as jnp
            >>> Sum(jnp.int32).dtype.name
            'int32'
        """
        return self.total.dtype

    def update(self, values: ArrayLike, mask: ArrayLike | None = None) -> None:
        """Adds values.

        Args:
            values: array of any shape.
            mask: what each value counts, or each entry of the leading axes: 0 for padding, which may be NaN.

        Raises:
            ShapeError: if the shapes do not fit.

        Example:
            >>> import jax.numpy as jnp
            >>> total = Sum()
            >>> total.update(jnp.array([1.0, 2.0, jnp.nan]), jnp.array([True, True, False]))
            >>> float(total.compute())
            3.0
        """
        values = jnp.asarray(values)
        weights = as_weights(mask, values.shape, type(self).__name__)
        self.total = self.total + weighted_sum(values, weights, self.dtype)

    def compute(self) -> jax.Array:
        """Returns the sum, a scalar; 0 if nothing was added.

        Example:
            >>> float(Sum().compute())
            0.0
        """
        return self.total
