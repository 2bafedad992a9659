# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Mean`: the weighted mean of all values."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from framework.errors import ModuleError
from framework.module.fields import State
from framework.trackers.base import Tracker, as_weights, weighted_sum


class Mean(Tracker):
    """The mean of all values, each with its weight; exact over batches of different sizes.

    Args:
        dtype: dtype of the sum of values, a float; the sum of weights is float32 or wider.

    Raises:
        ModuleError: if the dtype is no float.

    Example:
        >>> import jax.numpy as jnp
        >>> mean = Mean()
        >>> mean.update(jnp.array([1.0, 2.0, 100.0]), jnp.array([1, 1, 0]))
        >>> mean.update(6.0)
        >>> float(mean.compute())
        3.0
    """

    total: State[Float[Array, ""]]
    weight: State[Float[Array, ""]]

    def __init__(self, dtype: Any = jnp.float32) -> None:
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ModuleError(
                f"Mean was given dtype={jnp.dtype(dtype).name}, and a mean is a fraction. Give a float: "
                f"`Mean(jnp.float32)`; `Sum` takes integers."
            )
        self.total = jnp.zeros((), dtype)
        # bfloat16 would stop counting at 256.
        self.weight = jnp.zeros((), jnp.promote_types(dtype, jnp.float32))

    @property
    def dtype(self) -> Any:
        """The dtype of the sum of values.

        Example:
            >>> import jax.numpy as jnp
            >>> Mean(jnp.bfloat16).dtype.name
            'bfloat16'
        """
        return self.total.dtype

    def update(self, values: ArrayLike, weight: ArrayLike | None = None) -> None:
        """Adds values.

        Args:
            values: array of any shape.
            weight: for each value what it counts, or for each entry of the leading axes (a mask), or one number for a
                scalar value (how many examples it is the mean of). Values of weight 0 may be NaN.

        Raises:
            ShapeError: if the shapes do not fit.

        Example:
            >>> import jax.numpy as jnp
            >>> mean = Mean()
            >>> mean.update(jnp.array([[1.0, 3.0], [jnp.nan, jnp.nan]]), jnp.array([True, False]))
            >>> float(mean.compute()), float(mean.weight)
            (2.0, 2.0)
        """
        values = jnp.asarray(values)
        weights = as_weights(weight, values.shape, type(self).__name__)
        self.total = self.total + weighted_sum(values, weights, self.dtype)
        self.weight = self.weight + weights.sum().astype(self.weight.dtype)

    def compute(self) -> jax.Array:
        """Returns the mean, a scalar; NaN if the weights are zero in total.

        Example:
            >>> mean = Mean()
            >>> mean.update(2.0, 3)
            >>> mean.update(6.0, 1)
            >>> float(mean.compute())
            3.0
        """
        return self.total / self.weight
