"""Normalisation of values with a large mean and a small spread: the variance is right and never negative."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw

OFFSETS = [0.0, 10.0, 300.0, 1000.0, -1000.0]
COUNT, FEATURES = 32, 4


def batch(offset: float, dtype: Any, shape: tuple[int, ...] = (COUNT, FEATURES)) -> jax.Array:
    values = offset + 0.01 * np.random.default_rng(0).standard_normal(shape)
    return jnp.asarray(values.astype(np.float32)).astype(dtype)


def in_float64(x: jax.Array) -> np.ndarray:
    """Returns the values that the layer really gets: what bfloat16 rounds away is gone before it."""
    return np.asarray(x.astype(jnp.float32)).astype(np.float64)


# https://github.com/google/flax/issues/1491
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("offset", OFFSETS)
def test_the_running_variance_is_within_one_percent_of_that_in_float64(
    offset: float, dtype: Any, compiled: bool
) -> None:
    norm, x = fw.nn.BatchNorm(FEATURES, momentum=0.0), batch(offset, dtype)
    y = (fw.jit(norm) if compiled else norm)(x)
    assert y.dtype == dtype and bool(jnp.isfinite(y).all())
    expected = in_float64(x).var(0)
    assert bool((norm.variance >= 0).all())
    np.testing.assert_allclose(norm.variance, expected, rtol=0.01, atol=1e-12)
    np.testing.assert_allclose(norm.mean, in_float64(x).mean(0), rtol=1e-6, atol=1e-6)


def expected_output(x: jax.Array, axis: int, epsilon: float) -> np.ndarray:
    values = in_float64(x)
    return (values - values.mean(axis, keepdims=True)) / np.sqrt(values.var(axis, keepdims=True) + epsilon)


# https://github.com/patrick-kidger/equinox/pull/314
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kind", ["BatchNorm", "LayerNorm"])
def test_output_and_gradient_are_finite_and_those_of_float64(kind: str, offset: float, dtype: Any) -> None:
    axis = 0 if kind == "BatchNorm" else -1
    x = batch(offset, dtype, (COUNT, FEATURES) if kind == "BatchNorm" else (FEATURES, COUNT))
    layer: Any = getattr(fw.nn, kind)(x.shape[-1])

    def loss(layer: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = layer(x)
        return (y.astype(jnp.float32) ** 3).sum(), y

    ((_, y), (slopes, slope)) = fw.jit(fw.value_and_grad(loss, argnums=(0, 1), has_aux=True))(layer, x)
    # The mean is rounded to the spacing of float32 at the offset, which is 0.6 % of the spread at 1000.
    tolerance = 0.005 if dtype == jnp.float32 else 0.02
    np.testing.assert_allclose(in_float64(y), expected_output(x, axis, 1e-5), atol=tolerance)
    assert all(bool(jnp.isfinite(value).all()) for value in (*slopes.values(), slope))


# https://github.com/google/flax/issues/1491
@pytest.mark.parametrize("offset", [0.1, 1000.1, -3e4])
@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("kind", ["BatchNorm", "LayerNorm"])
def test_a_constant_input_gives_the_bias_and_a_finite_gradient(kind: str, size: int, offset: float) -> None:
    shape = (size, FEATURES) if kind == "BatchNorm" else (FEATURES, size)
    layer: Any = getattr(fw.nn, kind)(shape[-1])
    layer.bias = jnp.arange(float(shape[-1]))
    x = jnp.full(shape, offset, jnp.float32)
    np.testing.assert_allclose(layer(x), np.broadcast_to(np.arange(shape[-1]), shape), atol=1e-4)
    slope = fw.grad(lambda layer, x: (layer(x) ** 2).sum(), argnums=1)(layer, x)
    assert bool(jnp.isfinite(slope).all())


# https://github.com/google/flax/issues/1491
def test_the_running_variance_is_never_negative_in_a_long_run() -> None:
    norm = fw.nn.BatchNorm(FEATURES)
    xs = jnp.stack([batch(offset, jnp.float32) for offset in np.linspace(0, 2000, 50)])
    _, variances = fw.scan(lambda norm, x: (norm, (norm(x), norm.variance)[1]), norm, xs)
    assert bool((variances >= 0).all())
    norm.eval()
    assert bool(jnp.isfinite(norm(xs[-1])).all())


# https://github.com/google/flax/issues/1491
def test_large_means_are_right_over_devices_and_with_padding_too() -> None:
    x = batch(1000.0, jnp.float32, (8, 4, FEATURES))
    norm = fw.nn.BatchNorm(FEATURES, momentum=0.0, axis_name="devices")
    fw.vmap(norm, axis_name="devices")(x)
    np.testing.assert_allclose(norm.variance, in_float64(x).reshape(-1, FEATURES).var(0), rtol=0.01)
    masked = fw.nn.BatchNorm(FEATURES, momentum=0.0)
    flat, mask = x.reshape(-1, FEATURES), jnp.arange(32) < 20
    masked(jnp.where(mask[:, None], flat, 0.0), mask)
    np.testing.assert_allclose(masked.variance, in_float64(flat)[:20].var(0), rtol=0.01)
