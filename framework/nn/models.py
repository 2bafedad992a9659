# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""Models that the experiments of `configs/` train: a perceptron, a convolutional network, a transformer."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from framework.errors import ModuleError
from framework.lift.jit import jit
from framework.module.base import Module
from framework.module.fields import Param
from framework.nn.attention import MultiHeadAttention
from framework.nn.batch_norm import BatchNorm
from framework.nn.conv import Conv
from framework.nn.dropout import Dropout
from framework.nn.embedding import Embedding
from framework.nn.layer_norm import LayerNorm
from framework.nn.linear import Linear
from framework.nn.shapes import shown
from framework.random.rngs import Rngs


class MLP(Module):
    """Linear layers with an activation between them; inputs are flattened.

    Args:
        in_features: number of elements of one example.
        hidden: sizes of the hidden layers.
        out_features: number of outputs.
        dropout: rate of dropout after each hidden layer.
        activation: function between the layers.
        rngs: streams `params` and `dropout`.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.models.MLP(64, [32, 32], 10, rngs=fw.Rngs(0))(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        out_features: int,
        *,
        dropout: float = 0.0,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        rngs: Rngs,
    ) -> None:
        sizes = [in_features, *hidden, out_features]
        self.layers = [Linear(size, following, rngs=rngs) for size, following in itertools.pairwise(sizes)]
        self.dropout = Dropout(dropout, rngs=rngs)
        self.activation = activation
        self.in_features = in_features

    def __call__(self, x: Float[Array, " batch *features"]) -> Float[Array, " batch out_features"]:
        """Returns the outputs, of shape `[batch, out_features]`.

        Args:
            x: array of shape `[batch, ...]` with `in_features` elements in each example.

        Raises:
            ModuleError: if an example has another number of elements.
        """
        if x.ndim < 2 or x.size != x.shape[0] * self.in_features:
            raise ModuleError(
                f"MLP was made for examples of in_features={self.in_features} elements, and was given {shown(x)}. Make "
                f"it with the product of all axes but the batch: `MLP({x[0].size if x.ndim else 1}, ...)`."
            )
        x = x.reshape(x.shape[0], self.in_features)
        for layer in self.layers[:-1]:
            x = self.dropout(self.activation(layer(x)))
        return self.layers[-1](x)


class ConvNet(Module):
    """Pairs of convolutions with batch normalisation, each pair followed by pooling, and a linear layer.

    Args:
        channels: number of channels of each pair; the image is halved after each.
        num_classes: number of outputs.
        in_channels: number of channels of the image.
        image_size: height and width of the image.
        dropout: rate of dropout before the linear layer.
        rngs: streams `params` and `dropout`.

    Raises:
        ModuleError: if the image is too small for so many halvings.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.models.ConvNet([8, 16], 10, rngs=fw.Rngs(0))(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self,
        channels: Sequence[int],
        num_classes: int,
        *,
        in_channels: int = 1,
        image_size: int = 8,
        dropout: float = 0.0,
        rngs: Rngs,
    ) -> None:
        side = image_size // 2 ** len(channels)
        if side == 0:
            raise ModuleError(
                f"ConvNet halves the image once for each of channels={list(channels)}, and an image of {image_size} "
                f"pixels cannot be halved {len(channels)} times. Give fewer channels."
            )
        self.image_shape = (image_size, image_size, in_channels)
        self.convs: list[list[Conv]] = []
        self.norms: list[list[BatchNorm]] = []
        before = in_channels
        for count in channels:
            self.convs.append([Conv(size, count, (3, 3), use_bias=False, rngs=rngs) for size in (before, count)])
            self.norms.append([BatchNorm(count) for _ in range(2)])
            before = count
        self.dropout = Dropout(dropout, rngs=rngs)
        self.head = Linear(before * side * side, num_classes, rngs=rngs)

    def __call__(self, x: Float[Array, " batch height width channels"]) -> Float[Array, " batch num_classes"]:
        """Returns logits, of shape `[batch, num_classes]`.

        Args:
            x: images of shape `[batch, image_size, image_size, in_channels]`.

        Raises:
            ModuleError: if the images have another shape.
        """
        if x.shape[1:] != self.image_shape:
            raise ModuleError(
                f"ConvNet was made for images of shape {list(self.image_shape)}, and was given {shown(x)}. Give images "
                f"of shape [batch, height, width, channels], or make the model with their `image_size` and "
                f"`in_channels`."
            )
        for convs, norms in zip(self.convs, self.norms, strict=True):
            for conv, norm in zip(convs, norms, strict=True):
                x = jax.nn.relu(norm(conv(x)))
            x = _halved(x)
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


def _halved(x: jax.Array) -> jax.Array:
    """Returns the largest value of each square of two by two pixels; an odd last row or column is left out."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


class Block(Module):
    """One layer of a transformer: attention and a two-layer perceptron, each behind a norm and beside a residual.

    Args:
        width: length of the vectors.
        heads: number of attention heads.
        dropout: rate of dropout on both branches.
        rngs: streams `params` and `dropout`.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.nn.models.Block(8, 2, rngs=fw.Rngs(0))(jnp.ones((5, 3, 8))).shape
        (5, 3, 8)
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, rngs: Rngs) -> None:
        self.attention_norm = LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, causal=True, rngs=rngs)
        self.norm = LayerNorm(width)
        self.expand = Linear(width, 4 * width, rngs=rngs)
        self.contract = Linear(4 * width, width, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)

    @jit  # blocks of equal structure are traced once
    def __call__(self, x: Float[Array, " batch length width"]) -> Float[Array, " batch length width"]:
        """Returns the vectors after this layer, of the shape of the input."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.contract(jax.nn.gelu(self.expand(self.norm(x)))))


class Transformer(Module):
    """A causal language model: embeddings of tokens and positions, blocks, a norm and an output layer.

    Args:
        vocabulary_size: number of tokens.
        width: length of the vectors.
        depth: number of blocks.
        heads: number of attention heads of each block.
        length: largest number of tokens in a row.
        dropout: rate of dropout.
        tied: whether the output layer is the embedding of the tokens, and no layer of its own.
        rngs: streams `params` and `dropout`.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> model = fw.nn.models.Transformer(98, 16, 2, 2, 8, rngs=fw.Rngs(0))
        >>> model(jnp.zeros((5, 8), jnp.int32)).shape
        (5, 8, 98)
    """

    positions: Param[Float[Array, "length width"]]

    def __init__(
        self,
        vocabulary_size: int,
        width: int,
        depth: int,
        heads: int,
        length: int,
        *,
        dropout: float = 0.0,
        tied: bool = True,
        rngs: Rngs,
    ) -> None:
        self.length = length
        self.embedding = Embedding(vocabulary_size, width, weight_init=jax.nn.initializers.normal(0.02), rngs=rngs)
        self.positions = jax.nn.initializers.normal(0.02)(rngs.params(), (length, width), jnp.float32)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.blocks = [Block(width, heads, dropout=dropout, rngs=rngs) for _ in range(depth)]
        self.norm = LayerNorm(width)
        self.head = None if tied else Linear(width, vocabulary_size, use_bias=False, rngs=rngs)

    def __call__(self, tokens: Int[Array, " batch length"]) -> Float[Array, " batch length vocabulary_size"]:
        """Returns logits of the token after each one, of shape `[batch, length, vocabulary_size]`.

        Args:
            tokens: integers of shape `[batch, length]`.

        Raises:
            ModuleError: if there are more tokens in a row than the model has positions, or no batch.
        """
        if tokens.ndim != 2 or tokens.shape[-1] > self.length:
            raise ModuleError(
                f"Transformer takes tokens of shape [batch, length] and was made for {self.length} tokens in a row, "
                f"and was given {shown(tokens)}. Cut the input, add the batch with `tokens[None]`, or make the model "
                f"with `length={tokens.shape[-1] if tokens.ndim else 1}`."
            )
        x = self.dropout(self.embedding(tokens) + self.positions[: tokens.shape[-1]])
        for block in self.blocks:
            x = block(x)
        return self.embedding.attend(self.norm(x)) if self.head is None else self.head(self.norm(x))
