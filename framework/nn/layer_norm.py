# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`LayerNorm`: normalisation over the features of each example."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from framework.module.base import Module
from framework.module.fields import Param
from framework.nn.initializers import Initializer, ones, zeros
from framework.nn.shapes import at_least_float32, require_features
from framework.random.rngs import Rngs


class LayerNorm(Module):
    """Normalises the last axis of each example by its own mean and variance, computed in float32 or wider.

    Args:
        features: length of the last axis.
        epsilon: added to the variance.
        use_weight: whether to multiply by a trained weight.
        use_bias: whether to add a trained bias.
        dtype: dtype of the output; None for that of the input.
        param_dtype: dtype of the parameters.
        weight_init: initialiser of the weight, from `jax.nn.initializers`.
        bias_init: initialiser of the bias.
        rngs: the stream `params` is drawn from if the initialisers need a key; those unless given do not.

    Reference:
        Ba, Kiros and Hinton, Layer Normalization, 2016, https://arxiv.org/abs/1607.06450

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(3).tolist()
        [[-1.0, 1.0]]
    """

    weight: Param[Float[Array, " features"] | None]
    bias: Param[Float[Array, " features"] | None]

    def __init__(
        self,
        features: int,
        *,
        epsilon: float = 1e-5,
        use_weight: bool = True,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer = ones,
        bias_init: Initializer = zeros,
        rngs: Rngs | None = None,
    ) -> None:
        self.features, self.epsilon, self.dtype = features, epsilon, dtype
        self.weight = weight_init(rngs and rngs.params(), (features,), param_dtype) if use_weight else None
        self.bias = bias_init(rngs and rngs.params(), (features,), param_dtype) if use_bias else None

    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
        """Returns the normalised array, of the shape of the input.

        Args:
            x: array of shape `[..., features]`.

        Raises:
            ModuleError: if the last axis has another length.
        """
        require_features(self, x, self.features, "[..., features]")
        with jax.named_scope("LayerNorm"):
            values = at_least_float32(x)
            centered = values - values.mean(-1, keepdims=True)
            # What rounding left of the mean; with a large mean it would show in the output. Its derivative is zero.
            rest = jax.lax.stop_gradient(centered.mean(-1, keepdims=True))
            variance = jnp.maximum(jnp.square(centered).mean(-1, keepdims=True) - jnp.square(rest), 0)
            y = (centered - rest) * jax.lax.rsqrt(variance + self.epsilon)
            y = y if self.weight is None else y * self.weight
            y = y if self.bias is None else y + self.bias
            return y.astype(x.dtype if self.dtype is None else self.dtype)
