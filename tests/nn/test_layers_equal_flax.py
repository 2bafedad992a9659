"""Each layer equals flax.linen on shared weights: output, gradient and state."""

from collections.abc import Callable
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw

Case = tuple[Callable[[], Any], Any, tuple[int, ...], Callable[[Any], dict[str, Any]]]


def weights(layer: Any, prefix: str = "") -> dict[str, Any]:
    """Returns our weight and bias under flax's names."""
    named = {"kernel": layer.weight, "bias": layer.bias}
    return {name: value for name, value in named.items() if value is not None}


def norm_weights(layer: Any) -> dict[str, Any]:
    return {"scale": layer.weight, "bias": layer.bias}


def attention_weights(layer: Any) -> dict[str, Any]:
    heads, size = layer.heads, layer.features // layer.heads

    def into(part: Any) -> dict[str, Any]:
        return {"kernel": part.weight.reshape(-1, heads, size), "bias": part.bias.reshape(heads, size)}

    out = {"kernel": layer.out.weight.reshape(heads, size, -1), "bias": layer.out.bias}
    return {"query": into(layer.query), "key": into(layer.key), "value": into(layer.value), "out": out}


def attention_pair() -> Any:
    return linen.MultiHeadDotProductAttention(num_heads=2)


CASES: dict[str, Case] = {
    "linear": (lambda: fw.nn.Linear(4, 3, rngs=fw.Rngs(0)), linen.Dense(3), (5, 4), weights),
    "linear without bias": (
        lambda: fw.nn.Linear(4, 3, use_bias=False, rngs=fw.Rngs(0)),
        linen.Dense(3, use_bias=False),
        (2, 5, 4),
        weights,
    ),
    "conv": (lambda: fw.nn.Conv(3, 4, (3, 3), rngs=fw.Rngs(0)), linen.Conv(4, (3, 3)), (2, 7, 6, 3), weights),
    "conv 1d, strided, valid": (
        lambda: fw.nn.Conv(3, 4, (3,), strides=2, padding="VALID", rngs=fw.Rngs(0)),
        linen.Conv(4, (3,), strides=2, padding="VALID"),
        (2, 9, 3),
        weights,
    ),
    "conv 3d, dilated, padded": (
        lambda: fw.nn.Conv(1, 2, (2, 2, 2), dilation=2, padding=((1, 1), (0, 2), (2, 0)), rngs=fw.Rngs(0)),
        linen.Conv(2, (2, 2, 2), kernel_dilation=2, padding=((1, 1), (0, 2), (2, 0))),
        (2, 4, 5, 4, 1),
        weights,
    ),
    "conv in groups": (
        lambda: fw.nn.Conv(4, 6, (3, 3), groups=2, rngs=fw.Rngs(0)),
        linen.Conv(6, (3, 3), feature_group_count=2),
        (2, 5, 5, 4),
        weights,
    ),
    "layer norm": (lambda: fw.nn.LayerNorm(4), linen.LayerNorm(epsilon=1e-5), (5, 4), norm_weights),
    "attention": (
        lambda: fw.nn.MultiHeadAttention(8, 2, rngs=fw.Rngs(0)),
        attention_pair(),
        (3, 5, 8),
        attention_weights,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradient_equal_those_of_flax(name: str) -> None:
    make, other, shape, convert = CASES[name]
    layer, x = make(), jax.random.normal(jax.random.key(1), shape)

    def by_flax(params: Any, x: jax.Array) -> jax.Array:
        return other.apply({"params": params}, x)

    np.testing.assert_allclose(layer(x), by_flax(convert(layer), x), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(fw.jit(layer)(x), by_flax(convert(layer), x), rtol=2e-5, atol=2e-5)

    cotangent = jax.random.normal(jax.random.key(2), layer(x).shape)
    ours = fw.grad(lambda layer, x: (layer(x) * cotangent).sum())(layer, x)
    theirs = jax.grad(lambda params: (by_flax(params, x) * cotangent).sum())(convert(layer))
    copy = layer.clone()
    fw.update(copy, ours)
    flat = jax.tree.map(np.asarray, theirs), jax.tree.map(np.asarray, convert(copy))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *flat)


def test_causal_attention_equals_flax_with_a_causal_mask() -> None:
    layer, x = (
        fw.nn.MultiHeadAttention(8, 4, causal=True, rngs=fw.Rngs(0)),
        jax.random.normal(jax.random.key(1), (2, 6, 8)),
    )
    other = linen.MultiHeadDotProductAttention(num_heads=4)
    expected = other.apply({"params": attention_weights(layer)}, x, mask=linen.make_causal_mask(jnp.ones((2, 6))))
    np.testing.assert_allclose(layer(x), expected, rtol=2e-5, atol=2e-5)


def test_cross_attention_with_a_mask_equals_flax() -> None:
    layer = fw.nn.MultiHeadAttention(8, 2, context_features=6, rngs=fw.Rngs(0))
    x, context = jnp.ones((2, 3, 8)), jax.random.normal(jax.random.key(1), (2, 5, 6))
    mask = jnp.array([[True] * 3 + [False] * 2, [True] * 5])[:, None, None, :]
    expected = linen.MultiHeadDotProductAttention(num_heads=2).apply(
        {"params": attention_weights(layer)}, x, context, mask=mask
    )
    np.testing.assert_allclose(layer(x, context, mask=mask), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(16, 4), (3, 5, 5, 4)])
def test_batch_norm_equals_flax_in_output_state_and_evaluation(shape: tuple[int, ...]) -> None:
    layer, other = fw.nn.BatchNorm(4), linen.BatchNorm(momentum=0.9, epsilon=1e-5, use_fast_variance=False)
    layer.weight, layer.bias = jnp.arange(1.0, 5.0), jnp.arange(4.0)
    variables: Any = {
        "params": norm_weights(layer),
        "batch_stats": {"mean": layer.mean, "var": layer.variance},
    }
    for step in range(3):
        x = 3 * jax.random.normal(jax.random.key(step), shape) + 1
        y, changed = other.apply(variables, x, use_running_average=False, mutable=["batch_stats"])
        np.testing.assert_allclose(fw.jit(layer)(x), y, rtol=2e-5, atol=2e-5)
        variables |= changed
    np.testing.assert_allclose(layer.mean, variables["batch_stats"]["mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.variance, variables["batch_stats"]["var"], rtol=1e-5)
    layer.eval()
    mean = layer.mean
    np.testing.assert_allclose(layer(x), other.apply(variables, x, use_running_average=True), rtol=2e-5, atol=2e-5)
    assert layer.mean is mean


def test_embedding_equals_flax_both_ways() -> None:
    layer, other = fw.nn.Embedding(7, 4, rngs=fw.Rngs(0)), linen.Embed(7, 4)
    variables = {"params": {"embedding": layer.weight}}
    indices = jnp.array([[0, 6, 3], [1, 1, 2]])
    vectors = layer(indices)
    np.testing.assert_array_equal(vectors, other.apply(variables, indices))
    np.testing.assert_allclose(layer.attend(vectors), other.apply(variables, vectors, method="attend"), rtol=1e-6)
