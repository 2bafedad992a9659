# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Embedding`: a trained vector for each integer."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from framework.errors import ModuleError
from framework.module.base import Module
from framework.module.fields import Param
from framework.nn.initializers import Initializer
from framework.nn.shapes import promote, require_features, shown
from framework.random.rngs import Rngs


class Embedding(Module):
    """Looks up a vector for each integer.

    An integer out of range gives NaN. That holds for negative ones too, which JAX would count from the end.

    Args:
        size: number of integers; they lie in `0 .. size - 1`.
        features: length of a vector.
        dtype: dtype of the output; None for that of the parameters.
        param_dtype: dtype of the parameters.
        weight_init: initialiser; normal with standard deviation `features ** -0.5` unless given.
        rngs: the stream `params` gives the vectors.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> embedding = fw.nn.Embedding(10, 4, rngs=fw.Rngs(0))
        >>> embedding(jnp.array([[1, 2, 3]])).shape
        (1, 3, 4)
    """

    weight: Param[Float[Array, "size features"]]

    def __init__(
        self,
        size: int,
        features: int,
        *,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer | None = None,
        rngs: Rngs,
    ) -> None:
        self.size, self.features, self.dtype = size, features, dtype
        init = jax.nn.initializers.normal(features**-0.5) if weight_init is None else weight_init
        self.weight = init(rngs.params(), (size, features), param_dtype)

    def __call__(self, indices: Int[Array, "*batch"]) -> Float[Array, "*batch features"]:
        """Returns the vectors, of shape `[..., features]`.

        Args:
            indices: integers of shape `[...]`.

        Raises:
            ModuleError: if they are not of an integer type.
        """
        if not jnp.issubdtype(indices.dtype, jnp.integer):
            raise ModuleError(
                f"Embedding looks up integers, and was given {shown(indices)}. Convert them with "
                f"`indices.astype(jnp.int32)`."
            )
        with jax.named_scope("Embedding"):
            (weight,) = promote(self.dtype, self.weight)
            inside = jnp.where(indices < 0, self.size, indices)
            return jnp.take(weight, inside, axis=0, mode="fill", fill_value=jnp.nan)

    def attend(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch size"]:
        """Returns logits of all integers: the same weights as an output layer.

        Args:
            x: array of shape `[..., features]`.

        Raises:
            ModuleError: if the last axis has another length.

        Example:
            >>> import jax.numpy as jnp
            >>> import framework as fw
            >>> fw.nn.Embedding(10, 4, rngs=fw.Rngs(0)).attend(jnp.ones((1, 3, 4))).shape
            (1, 3, 10)
        """
        require_features(self, x, self.features, "[..., features]")
        with jax.named_scope("Embedding.attend"):
            x, weight = promote(self.dtype, x, self.weight)
            return x @ weight.T
