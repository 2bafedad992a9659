# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`BatchNorm`: normalisation over the batch, with running statistics."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from framework.errors import ModuleError
from framework.module.base import Module
from framework.module.fields import Param, State
from framework.nn.initializers import Initializer, ones, zeros
from framework.nn.shapes import at_least_float32, require_features, shown
from framework.random.rngs import Rngs


class BatchNorm(Module):
    """Normalises each feature by its mean and variance over all other axes.

    In training mode the statistics are those of the batch, and the running ones are moved towards them:
    `running = momentum * running + (1 - momentum) * batch`, with the population variance. In evaluation mode the
    running statistics are used and nothing is written. Statistics are computed in float32 or wider, the variance in a
    second pass around the mean, since the mean of squares minus the squared mean can become negative.

    Args:
        features: length of the last axis.
        momentum: see above.
        epsilon: added to the variance.
        use_weight: whether to multiply by a trained weight.
        use_bias: whether to add a trained bias.
        axis_name: name of a mapped axis over which the statistics are taken as well.
        dtype: dtype of the output; None for that of the input.
        param_dtype: dtype of the parameters.
        weight_init: initialiser of the weight, from `jax.nn.initializers`.
        bias_init: initialiser of the bias.
        rngs: the stream `params` is drawn from if the initialisers need a key; those unless given do not.

    Reference:
        Ioffe and Szegedy, Batch Normalization, 2015, https://arxiv.org/abs/1502.03167

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> norm = fw.nn.BatchNorm(1)
        >>> norm(jnp.array([[1.0], [3.0]])).round(3).tolist()
        [[-1.0], [1.0]]
        >>> bool(jnp.allclose(norm.mean, 0.1 * 2)), bool(jnp.allclose(norm.variance, 0.9 * 1 + 0.1 * 1))
        (True, True)
    """

    weight: Param[Float[Array, " features"] | None]
    bias: Param[Float[Array, " features"] | None]
    mean: State[Float[Array, " features"]]
    variance: State[Float[Array, " features"]]

    def __init__(
        self,
        features: int,
        *,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        use_weight: bool = True,
        use_bias: bool = True,
        axis_name: str | None = None,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer = ones,
        bias_init: Initializer = zeros,
        rngs: Rngs | None = None,
    ) -> None:
        self.features, self.momentum, self.epsilon = features, momentum, epsilon
        self.axis_name, self.dtype = axis_name, dtype
        self.weight = weight_init(rngs and rngs.params(), (features,), param_dtype) if use_weight else None
        self.bias = bias_init(rngs and rngs.params(), (features,), param_dtype) if use_bias else None
        self.mean = jnp.zeros(features, jnp.float32)
        self.variance = jnp.ones(features, jnp.float32)

    def __call__(
        self, x: Float[Array, "*batch features"], mask: Array | None = None
    ) -> Float[Array, "*batch features"]:
        """Returns the normalised array.

        Args:
            x: array of shape `[..., features]`.
            mask: 0 for rows that do not count in the statistics, which may be NaN then; of the shape of `x` without the
                last axis, or of its leading axes.

        Raises:
            ModuleError: if the last axis has another length, or the mask does not fit.
        """
        require_features(self, x, self.features, "[..., features]")
        with jax.named_scope("BatchNorm"):
            values, counted = at_least_float32(x), None
            if mask is not None:
                counted = self._spread(mask, values)
                # NaN in padding would reach the gradient of the weight, where 0 times NaN is NaN.
                values = jnp.where(counted | jnp.isfinite(values), values, 0)
            mean, variance = self._batch_statistics(values, counted) if self.training else (self.mean, self.variance)
            y = (values - mean) * jax.lax.rsqrt(variance + self.epsilon)
            y = y if self.weight is None else y * self.weight
            y = y if self.bias is None else y + self.bias
            return y.astype(x.dtype if self.dtype is None else self.dtype)

    def _batch_statistics(self, values: jax.Array, counted: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        axes = tuple(range(values.ndim - 1))
        counted = jnp.ones((*values.shape[:-1], 1), bool) if counted is None else counted
        count = self._total(counted.sum().astype(values.dtype))
        # A batch without any real row, as data parallelism can deal out, has no statistics: the running ones stay.
        any_row, divisor = count > 0, jnp.maximum(count, 1)
        mean = self._total(jnp.where(counted, values, 0).sum(axes)) / divisor
        centered = jnp.where(counted, values - mean, 0)
        # What rounding left of the mean; with a large mean it would show in the output. Its derivative is zero.
        rest = jax.lax.stop_gradient(self._total(centered.sum(axes)) / divisor)
        variance = jnp.maximum(self._total(jnp.square(centered).sum(axes)) / divisor - jnp.square(rest), 0)
        mean = mean + rest
        mean, variance = jnp.where(any_row, mean, self.mean), jnp.where(any_row, variance, self.variance)
        self.mean = self._moved(self.mean, mean, any_row)
        self.variance = self._moved(self.variance, variance, any_row)
        return mean, variance

    def _spread(self, mask: jax.Array, values: jax.Array) -> jax.Array:
        """Returns a mask for the leading axes as booleans of shape `[..., 1]`."""
        if mask.ndim == 0 or mask.shape != values.shape[:-1][: mask.ndim]:
            raise ModuleError(
                f"BatchNorm was given an input of shape {list(values.shape)} and the mask {shown(mask)}, which must be "
                f"the first axes of the input. Give one number for each example: a mask of shape "
                f"{list(values.shape[:1])}."
            )
        spread = (mask != 0).reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
        return jnp.broadcast_to(spread, (*values.shape[:-1], 1))

    def _moved(self, running: jax.Array, batch: jax.Array, any_row: jax.Array) -> jax.Array:
        batch = jax.lax.stop_gradient(batch).astype(running.dtype)
        return jnp.where(any_row, self.momentum * running + (1 - self.momentum) * batch, running)

    def _total(self, value: jax.Array) -> jax.Array:
        return value if self.axis_name is None else jax.lax.psum(value, self.axis_name)
