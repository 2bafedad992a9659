"""`eval_shape` and `custom_vjp` over objects."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Counter(fw.Module):
    count: fw.State
    steps: int = 0

    def __init__(self) -> None:
        self.count = jnp.zeros((), jnp.int32)

    def __call__(self, x: Any) -> Any:
        self.count = self.count + 1
        self.steps = self.steps + 1
        return x * self.count


def test_eval_shape_makes_abstract_objects_without_arrays() -> None:
    model = fw.eval_shape(lambda: fw.nn.models.MLP(8, [1 << 20], 4, rngs=fw.Rngs(0)))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(model))
    assert {path: leaf.shape for path, leaf in fw.select(model).items()}["layers.0.weight"] == (8, 1 << 20)
    small = fw.nn.models.MLP(8, [16], 4, rngs=fw.Rngs(0))
    assert fw.eval_shape(small, jax.ShapeDtypeStruct((3, 8), jnp.float32)).shape == (3, 4)


def test_eval_shape_leaves_its_arguments_as_they_are_and_returns_what_they_would_be() -> None:
    counter = Counter()
    assert fw.eval_shape(counter, jnp.ones(3)).shape == (3,)
    assert int(counter.count) == 0 and counter.steps == 0

    def call(counter: Counter) -> Counter:
        counter(jnp.ones(3))
        return counter

    after = fw.eval_shape(call, counter)
    assert after is not counter and after.steps == 1 and isinstance(after.count, jax.ShapeDtypeStruct)
    assert counter.steps == 0 and isinstance(counter.count, jax.Array)


def test_eval_shape_of_an_abstract_model_needs_no_arrays_at_all() -> None:
    model = fw.eval_shape(lambda: fw.nn.Linear(2, 3, rngs=fw.Rngs(0)))
    loss = fw.eval_shape(lambda model, x: model(x).sum(), model, jax.ShapeDtypeStruct((5, 2), jnp.float32))
    assert loss.shape == () and loss.dtype == jnp.float32


class Scaled(fw.Module):
    weight: fw.Param
    calls: fw.State

    def __init__(self) -> None:
        self.weight, self.calls = jnp.array([2.0, -3.0]), jnp.zeros(())


def make(scale: float) -> fw.custom_vjp:
    @fw.custom_vjp
    def product(module: Scaled, x: Any, flag: str) -> Any:
        module.calls = module.calls + 1
        return {"y": module.weight * x, "flag": flag}

    def forward(module: Scaled, x: Any, flag: str) -> Any:
        return product._function(module, x, flag), (module, x)

    def backward(residuals: Any, cotangent: Any) -> Any:
        module, x = residuals
        return {"weight": scale * x * cotangent["y"]}, module.weight * cotangent["y"], None

    product.defvjp(forward, backward)
    return product


@pytest.mark.parametrize("jit", [lambda f: f, fw.jit])
@pytest.mark.parametrize("inner", [lambda f: f, fw.jit])
def test_a_derivative_of_ones_own_is_used_and_state_comes_out(jit: Any, inner: Any) -> None:
    product = inner(make(10.0))
    x = jnp.array([5.0, 7.0])

    def loss(module: Scaled, x: Any) -> Any:
        return product(module, x, "name")["y"].sum()

    module = Scaled()
    gradient = jit(fw.grad(loss))(module, x)
    np.testing.assert_array_equal(gradient["weight"], 10 * x)
    assert float(module.calls) == 1.0
    np.testing.assert_array_equal(jit(fw.grad(loss, argnums=1))(module, x), module.weight)
    result = jit(lambda module, x: product(module, x, "name")["y"])(module, x)
    np.testing.assert_array_equal(result, module.weight * x)
    assert float(module.calls) == 3.0


def test_a_derivative_under_vmap_and_scan_is_that_of_a_loop() -> None:
    product, module = make(1.0), Scaled()
    xs = jnp.arange(6.0).reshape(3, 2)

    def loss(module: Scaled, xs: Any) -> Any:
        return fw.scan(lambda m, x: (m, product(m, x, "a")["y"].sum()), module, xs)[1].sum()

    np.testing.assert_allclose(fw.grad(loss)(module, xs)["weight"], xs.sum(0))
    assert float(module.calls) == 3.0


def test_what_custom_vjp_cannot_do_is_said() -> None:
    bare = fw.custom_vjp(lambda module: module.weight)
    with pytest.raises(LiftError, match=r"has no derivative yet. Give it one: `<lambda>.defvjp\(forward, backward\)`"):
        bare(Scaled())
    returning = fw.custom_vjp(lambda module: module)
    returning.defvjp(lambda module: (module, None), lambda residuals, cotangent: (None,))
    with pytest.raises(LiftError, match="an object was returned; return its arrays"):
        returning(Scaled())
    wrong = fw.custom_vjp(lambda module: module.weight.sum())
    wrong.defvjp(lambda module: (module.weight.sum(), None), lambda residuals, cotangent: ({"wieght": 1.0},))
    with pytest.raises(LiftError, match="returned gradients of 'wieght', and the leaves are weight, calls"):
        fw.grad(lambda module: wrong(module))(Scaled())
    few = fw.custom_vjp(lambda module, x: module.weight.sum() * x)
    few.defvjp(lambda module, x: (module.weight.sum() * x, None), lambda residuals, cotangent: None)
    with pytest.raises(LiftError, match="returned 1 gradients for 2 arguments"):
        fw.grad(lambda module: few(module, 2.0))(Scaled())
