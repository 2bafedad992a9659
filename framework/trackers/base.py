"""What every tracker does, and how masks weigh values."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from framework.errors import ModuleError
from framework.module.base import Module


class Tracker(Module):
    """Base class of metrics that are added up over batches: `update`, `compute`, `reset` and `merge`.

    All leaves of a tracker are sums that start at zero. So resetting is setting them to zero, and the tracker of two
    halves of the data is the sum of their trackers.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> class Positives(fw.trackers.Tracker):
        ...     count: fw.State
        ...     def __init__(self):
        ...         self.count = jnp.zeros((), jnp.int32)
        ...     def update(self, values):
        ...         self.count = self.count + (values > 0).sum()
        ...     def compute(self):
        ...         return self.count
        >>> positives = Positives()
        >>> positives.update(jnp.array([1.0, -1.0, 2.0]))
        >>> int(positives.compute())
        2
    """

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds a batch.

        Example:
            >>> import framework as fw
            >>> mean = fw.trackers.Mean()
            >>> mean.update(2.0)
            >>> mean.update(4.0)
            >>> float(mean.compute())
            3.0
        """
        raise NotImplementedError(
            f"{type(self).__name__} needs a method `def update(self, ...)` that adds to its sums."
        )

    def compute(self) -> Any:
        """Returns the metric of what was added since the last reset; of nothing, a mean is NaN and a sum 0.

        Example:
            >>> import framework as fw
            >>> float(fw.trackers.Mean().compute())
            nan
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method `def compute(self)` that returns the metric.")

    def reset(self) -> None:
        """Forgets everything.

        Example:
            >>> import framework as fw
            >>> mean = fw.trackers.Mean()
            >>> mean.update(2.0)
            >>> mean.reset()
            >>> mean.update(4.0)
            >>> float(mean.compute())
            4.0
        """
        for name, value in vars(self).items():
            if isinstance(value, jax.Array):
                setattr(self, name, jnp.zeros_like(value))

    def merge(self, other: Any) -> None:
        """Adds what another tracker of the same class has seen, for example on another device.

        Args:
            other: left as it is.

        Raises:
            ModuleError: if it is a tracker of another class.

        Example:
            >>> import framework as fw
            >>> first, second = fw.trackers.Mean(), fw.trackers.Mean()
            >>> first.update(2.0)
            >>> second.update(4.0)
            >>> first.merge(second)
            >>> float(first.compute())
            3.0
        """
        if type(other) is not type(self):
            name = type(self).__name__
            raise ModuleError(
                f"{name}.merge was given a {type(other).__name__}, whose sums mean something else. Merge trackers of "
                f"the same class: `{name}().merge({name}())`."
            )
        for name, value in vars(self).items():
            if isinstance(value, jax.Array):
                setattr(self, name, value + getattr(other, name).astype(value.dtype))


class ShapeError(ModuleError, ValueError):
    """A tracker was updated with arrays whose shapes do not fit each other.

    Example:
        >>> issubclass(ShapeError, ValueError)
        True
    """


def as_weights(mask: ArrayLike | None, shape: tuple[int, ...], name: str) -> jax.Array:
    """Returns a weight for each value: a mask for the leading axes, spread over the others, or ones.

    Args:
        mask: array whose shape is the beginning of `shape`, or None.
        shape: shape of the values.
        name: class of the tracker, for the error text.

    Returns:
        A float32 array of the shape.

    Raises:
        ShapeError: if the mask does not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> as_weights(jnp.array([1, 0]), (2, 3), "Mean").tolist()
        [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """
    if mask is None:
        return jnp.ones(shape, jnp.float32)
    weights = jnp.asarray(mask, jnp.float32)
    if weights.shape != shape[: weights.ndim]:
        raise ShapeError(
            f"{name}.update: a mask of shape {list(weights.shape)} does not fit values of shape {list(shape)}, whose "
            f"first axes it must have. Give one number for each value, or one for each example: a mask of shape "
            f"{list(shape[:1])}."
        )
    return jnp.broadcast_to(weights.reshape(weights.shape + (1,) * (len(shape) - weights.ndim)), shape)


def weighted_sum(values: jax.Array, weights: jax.Array, dtype: Any) -> jax.Array:
    """Returns the sum of the weighted values, in which a value of weight 0 does not count even if it is NaN.

    Args:
        values: array of any shape.
        weights: float32 array of the same shape.
        dtype: dtype of the result.

    Returns:
        A scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> float(weighted_sum(jnp.array([2.0, jnp.nan]), jnp.array([0.5, 0.0]), jnp.float32))
        1.0
    """
    # Small floats would round at every element; integers must not pass through float32, which has 24 bits for them.
    wide = jnp.promote_types(dtype, jnp.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype
    products = values.astype(wide) * weights.astype(wide)
    return jnp.where(weights == 0, 0, products).sum().astype(dtype)
