# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Linear`: a matrix and a bias."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from framework.module.base import Module
from framework.module.fields import Param
from framework.nn.initializers import Initializer, lecun_normal, zeros
from framework.nn.shapes import promote, require_features
from framework.random.rngs import Rngs


class Linear(Module):
    """Maps the last axis: `y = x @ weight + bias`, with a weight of shape `[in_features, out_features]`.

    Args:
        in_features: length of the last axis of the input.
        out_features: length of the last axis of the output.
        use_bias: whether to add a bias.
        dtype: dtype of the computation; None for what input and parameters have in common.
        param_dtype: dtype of the parameters.
        weight_init: initialiser of the weight, from `jax.nn.initializers`.
        bias_init: initialiser of the bias.
        rngs: the stream `params` gives the weights.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.Linear(2, 3, rngs=fw.Rngs(0))(jnp.ones((5, 2))).shape
        (5, 3)
    """

    weight: Param[Float[Array, "in_features out_features"]]
    bias: Param[Float[Array, " out_features"] | None]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer = lecun_normal,
        bias_init: Initializer = zeros,
        rngs: Rngs,
    ) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.dtype = dtype
        self.weight = weight_init(rngs.params(), (in_features, out_features), param_dtype)
        self.bias = bias_init(rngs.params(), (out_features,), param_dtype) if use_bias else None

    def __call__(self, x: Float[Array, "*batch in_features"]) -> Float[Array, "*batch out_features"]:
        """Returns the mapped array, of shape `[..., out_features]`.

        Args:
            x: array of shape `[..., in_features]`.

        Raises:
            ModuleError: if the last axis has another length.
        """
        require_features(self, x, self.in_features, "[..., in_features]")
        with jax.named_scope("Linear"):
            x, weight, bias = promote(self.dtype, x, self.weight, self.bias)
            y = x @ weight
            return y if bias is None else y + bias
