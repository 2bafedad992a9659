"""State in compiled loops: `scan` over T steps does what a Python loop over T steps does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw

STEPS = 4


class Net(fw.Module):
    """Batch statistics, random draws and a counter in one module, with a scan in a method."""

    calls: fw.State

    def __init__(self) -> None:
        rngs = fw.Rngs(0)
        self.linear = fw.nn.Linear(3, 3, rngs=rngs)
        self.norm = fw.nn.BatchNorm(3)
        self.dropout = fw.nn.Dropout(0.5, rngs=rngs)
        self.calls = jnp.zeros((), jnp.int32)

    def __call__(self, x: jax.Array) -> jax.Array:
        self.calls = self.calls + 1
        return self.dropout(self.norm(self.linear(x)))

    def over(self, xs: jax.Array, *, remat: bool = False) -> jax.Array:
        def body(net: Net, x: jax.Array) -> tuple[Net, jax.Array]:
            return net, (fw.remat(net) if remat else net)(x)

        return fw.scan(body, self, xs)[1]


class Wrapper(fw.Module):
    """The same net, one level down."""

    def __init__(self) -> None:
        self.net = Net()

    def over(self, xs: jax.Array) -> jax.Array:
        return fw.scan(lambda wrapper, x: (wrapper, wrapper.net(x)), self, xs)[1]


def by_fori_loop(net: Net, xs: jax.Array) -> jax.Array:
    def body(i: Any, carry: Any) -> Any:
        net, ys = carry
        return net, ys.at[i].set(net(xs[i]))

    return fw.fori_loop(0, STEPS, body, (net, jnp.zeros_like(xs)))[1]


WAYS: dict[str, Any] = {
    "scan": lambda net, xs: fw.scan(lambda net, x: (net, net(x)), net, xs)[1],
    "scan in a method": lambda net, xs: net.over(xs),
    "scan of remat": lambda net, xs: net.over(xs, remat=True),
    "scan unrolled": lambda net, xs: fw.scan(lambda net, x: (net, net(x)), net, xs, unroll=True)[1],
    "scan of jit": lambda net, xs: fw.scan(lambda net, x: (net, fw.jit(net)(x)), net, xs)[1],
    "remat of scan": lambda net, xs: fw.remat(lambda net, xs: net.over(xs))(net, xs),
    "fori_loop": by_fori_loop,
}


def inputs() -> jax.Array:
    return jax.random.normal(jax.random.key(5), (STEPS, 6, 3))


def python_loop(net: Net, xs: jax.Array) -> jax.Array:
    return jnp.stack([net(x) for x in xs])


def require_equal_state(actual: Any, expected: Any) -> None:
    pairs = zip(fw.select(actual).items(), fw.select(expected).items(), strict=True)
    for (path, one), (other_path, other) in pairs:
        assert path == other_path
        if jnp.issubdtype(one.dtype, jnp.floating):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=path)
        else:
            assert bool(jnp.all(one == other)), path


# https://github.com/google/flax/issues/2052
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_loop_leaves_outputs_and_every_leaf_as_the_python_loop_does(way: str, compiled: bool) -> None:
    looped, scanned = Net(), Net()
    expected = python_loop(looped, inputs())
    run = fw.jit(WAYS[way]) if compiled else WAYS[way]
    np.testing.assert_allclose(run(scanned, inputs()), expected, rtol=1e-5, atol=1e-6)
    require_equal_state(scanned, looped)
    assert int(scanned.calls) == STEPS


# https://github.com/google/flax/issues/2052
@pytest.mark.parametrize("compiled", [False, True])
def test_a_module_around_the_one_with_state_changes_nothing(compiled: bool) -> None:
    alone, wrapped = Net(), Wrapper()
    expected = python_loop(alone, inputs())
    actual = fw.jit(wrapped.over)(inputs()) if compiled else wrapped.over(inputs())
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    require_equal_state(wrapped.net, alone)


# https://github.com/google/flax/issues/2052
@pytest.mark.parametrize("way", ["scan", "scan of remat", "remat of scan", "fori_loop"])
def test_the_gradient_through_the_loop_is_that_of_the_unrolled_one(way: str) -> None:
    def loss(run: Any) -> Any:
        return lambda net, xs: (run(net, xs) ** 3).sum()

    looped, scanned = Net(), Net()
    expected_value, expected = fw.value_and_grad(loss(python_loop))(looped, inputs())
    value, gradient = fw.jit(fw.value_and_grad(loss(WAYS[way])))(scanned, inputs())
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    assert gradient.keys() == expected.keys()
    for path, slope in gradient.items():
        scale = float(jnp.abs(expected[path]).max())
        # A bias in front of a normalisation has no slope but for rounding.
        np.testing.assert_allclose(slope, expected[path], rtol=1e-5, atol=1e-6 * max(scale, 100.0), err_msg=path)
    require_equal_state(scanned, looped)


# https://github.com/patrick-kidger/equinox/issues/237
@pytest.mark.parametrize("place", ["python loop", "scan", "scan in jit", "scan in grad"])
def test_batch_statistics_after_two_batches_are_the_ones_by_hand(place: str) -> None:
    norm, xs = fw.nn.BatchNorm(1, momentum=0.9), jnp.array([[[1.0], [3.0]], [[2.0], [6.0]]])

    def scan(norm: Any, xs: jax.Array) -> jax.Array:
        return fw.scan(lambda norm, x: (norm, norm(x)), norm, xs)[1].sum()

    if place == "python loop":
        for x in xs:
            norm(x)
    else:
        {"scan": scan, "scan in jit": fw.jit(scan), "scan in grad": fw.grad(scan)}[place](norm, xs)
    # 0.9 * (0.1 * 2) + 0.1 * 4 and 0.9 * (0.9 * 1 + 0.1 * 1) + 0.1 * 4
    np.testing.assert_allclose(norm.mean, [0.58], rtol=1e-6)
    np.testing.assert_allclose(norm.variance, [1.30], rtol=1e-6)
