# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`MultiHeadAttention`: scaled dot-product attention with several heads."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from framework.errors import ModuleError
from framework.module.base import Module
from framework.nn.initializers import Initializer, lecun_normal, zeros
from framework.nn.linear import Linear
from framework.nn.shapes import require_features, shown
from framework.random.rngs import Rngs


class MultiHeadAttention(Module):
    """Attends from each position of `x` to the positions of `context`, or of `x` itself.

    Args:
        features: length of the last axis of input and output.
        heads: number of heads; divides the features.
        context_features: length of the last axis of the context, if it is another one.
        causal: whether a position attends only to itself and the ones before it.
        use_bias: whether the projections have biases.
        dtype: dtype of the computation, see `Linear`.
        param_dtype: dtype of the parameters.
        weight_init: initialiser of the four weights, from `jax.nn.initializers`.
        bias_init: initialiser of the four biases.
        rngs: the stream `params` gives the weights.

    Raises:
        ModuleError: if the heads do not divide the features.

    Reference:
        Vaswani et al., Attention Is All You Need, 2017, https://arxiv.org/abs/1706.03762

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> attention = fw.nn.MultiHeadAttention(8, 2, causal=True, rngs=fw.Rngs(0))
        >>> attention(jnp.ones((5, 3, 8))).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        context_features: int | None = None,
        causal: bool = False,
        use_bias: bool = True,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        weight_init: Initializer = lecun_normal,
        bias_init: Initializer = zeros,
        rngs: Rngs,
    ) -> None:
        if features % heads:
            raise ModuleError(
                f"MultiHeadAttention cannot split {features} features into {heads} heads; choose a number of heads "
                f"that divides the features."
            )
        self.features, self.heads, self.causal = features, heads, causal
        self.context_features = features if context_features is None else context_features
        options: dict[str, Any] = {"use_bias": use_bias, "dtype": dtype, "param_dtype": param_dtype}
        options |= {"weight_init": weight_init, "bias_init": bias_init, "rngs": rngs}
        self.query = Linear(features, features, **options)
        self.key = Linear(self.context_features, features, **options)
        self.value = Linear(self.context_features, features, **options)
        self.out = Linear(features, features, **options)

    def __call__(
        self,
        x: Float[Array, "*batch length features"],
        context: Float[Array, "*batch context_length context_features"] | None = None,
        *,
        mask: Bool[Array, "..."] | None = None,
    ) -> Float[Array, "*batch length features"]:
        """Returns what each position gathered, of the shape of `x`.

        Args:
            x: array of shape `[batch, length, features]`, or without the batch.
            context: what to attend to, of shape `[batch, context_length, context_features]`, or without the batch; `x`
                itself if not given.
            mask: True where a position may attend; of a shape that broadcasts to `[batch, heads, length,
                context_length]`.

        Raises:
            ModuleError: if a shape is another one.
        """
        context = x if context is None else context
        require_features(self, x, self.features, "[batch, length, features]")
        require_features(self, context, self.context_features, "[batch, context_length, context_features]")
        if x.ndim not in (2, 3) or x.shape[:-2] != context.shape[:-2]:
            raise ModuleError(
                f"MultiHeadAttention takes [batch, length, features] or [length, features], the context with the same "
                f"batch, and was given {shown(x)} and the context {shown(context)}. Merge further batch axes with "
                f"`x.reshape(-1, *x.shape[-2:])`."
            )
        with jax.named_scope("MultiHeadAttention"):
            query, key, value = self.query(x), self.key(context), self.value(context)
            gathered = jax.nn.dot_product_attention(
                self._split(query),
                self._split(key),
                self._split(value),
                mask=self._four_axes(mask, x, context),
                is_causal=self.causal,
            )
            return self.out(gathered.reshape(query.shape))

    def _split(self, array: jax.Array) -> jax.Array:
        return array.reshape(*array.shape[:-1], self.heads, self.features // self.heads)

    def _four_axes(self, mask: jax.Array | None, x: jax.Array, context: jax.Array) -> jax.Array | None:
        if mask is None:
            return None
        shape = (x.shape[0] if x.ndim == 3 else 1, self.heads, x.shape[-2], context.shape[-2])
        padded = (1,) * (4 - mask.ndim) + mask.shape
        if len(padded) != 4 or any(size not in (1, full) for size, full in zip(padded, shape, strict=True)):
            raise ModuleError(
                f"MultiHeadAttention was given the mask {shown(mask)}, which does not broadcast to {list(shape)}: "
                f"[batch, heads, length, context_length]. For a mask of the context positions of each example, pass "
                f"`mask[:, None, None, :]`."
            )
        return mask.reshape(padded)
