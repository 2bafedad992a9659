"""The three programs of the questions that this project grew out of."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import framework as fw


class SumTracker(fw.Module):
    total: fw.State
    dtype: Any = jnp.float32

    def __init__(self) -> None:
        self.total = jnp.zeros(())

    def __call__(self, x: jax.Array, dtype: Any = None) -> jax.Array:
        if dtype is not None:
            self.dtype = dtype
        self.total = self.total + x.sum(dtype=self.dtype)
        return self.total


DTYPES = (jnp.float16, jnp.bfloat16, jnp.float32)


def test_a_hyperparameter_changes_in_plain_jit_and_comes_out_in_the_returned_structure() -> None:
    traces: list[Any] = []

    def step(tracker: SumTracker, x: jax.Array, dtype: Any) -> SumTracker:
        traces.append(dtype)
        tracker(x, dtype)
        return tracker

    jitted = jax.jit(step, static_argnums=2)
    x = jnp.arange(8, dtype=jnp.float32)
    for dtype in DTYPES:
        tracker = jitted(SumTracker(), x, dtype)
        assert tracker.dtype == dtype
        assert float(tracker.total) == 28.0
        expected = SumTracker()
        expected.dtype = dtype
        assert jax.tree.structure(tracker) == jax.tree.structure(expected)
        assert float(jitted(SumTracker(), x, dtype).total) == 28.0
    assert traces == list(DTYPES)


def test_a_hyperparameter_changes_in_fw_jit_on_the_callers_object() -> None:
    step = fw.jit(lambda tracker, x, dtype: tracker(x, dtype))
    x = jnp.arange(8, dtype=jnp.float32)
    for _, dtype in itertools.product(range(2), DTYPES):
        tracker = SumTracker()
        assert float(step(tracker, x, dtype)) == 28.0
        assert tracker.dtype == dtype
        assert float(tracker.total) == 28.0
    assert len(step.traces) == len(DTYPES)


def test_a_sums_in_float16_are_those_of_plain_python() -> None:
    lifted, eager = SumTracker(), SumTracker()
    step = fw.jit(lambda tracker, x, dtype: tracker(x, dtype))
    x = jnp.linspace(0.0, 1.0, 7)
    for dtype in (None, jnp.float16, None, jnp.float32, jnp.float16):
        step(lifted, x, dtype)
        eager(x, dtype)
        assert fw.tree_equal(lifted, eager)


class Linear(fw.Module):
    weight: fw.Param
    bias: fw.Param

    def __init__(self) -> None:
        self.weight = jax.random.normal(jax.random.key(0), (3, 2))
        self.bias = jnp.zeros(2)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight + self.bias


@pytest.mark.parametrize("factory", [optax.sgd, optax.adam, optax.adamw, optax.lion])
def test_b_an_optimizer_mutated_in_place_equals_hand_written_optax(factory: Callable[..., Any]) -> None:
    model = Linear()
    optimizer = fw.Optimizer(factory, model, learning_rate=0.1)

    @fw.jit
    def train_step(model: Linear, optimizer: fw.Optimizer, x: jax.Array) -> tuple[jax.Array, fw.Optimizer]:
        loss, gradients = fw.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(gradients)
        return loss, optimizer

    transformation = factory(0.1)
    params = {name: jnp.copy(leaf) for name, leaf in fw.select(model, fw.Param).items()}
    state = transformation.init(params)

    @jax.jit
    def by_hand(params: Any, state: Any, x: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            return ((x @ params["weight"] + params["bias"]) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = transformation.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    x = jax.random.normal(jax.random.key(1), (5, 3))
    for _ in range(10):
        loss, returned = train_step(model, optimizer, x)
        params, state, expected = by_hand(params, state, x)
        assert returned is optimizer
        assert returned.model is model
        assert loss == expected
    for name, leaf in fw.select(model, fw.Param).items():
        assert (leaf == params[name]).all()
    assert len(train_step.traces) == 1
    assert int(optimizer.step) == 10


def test_b_through_plain_jit_the_returned_optimizer_has_the_trained_model() -> None:
    def train_step(optimizer: fw.Optimizer, x: jax.Array) -> fw.Optimizer:
        gradients = fw.grad(lambda model: (model(x) ** 2).mean())(optimizer.model)
        optimizer.update(gradients)
        return optimizer

    x = jnp.ones((5, 3))
    plain, lifted = (fw.Optimizer(optax.adam, Linear(), learning_rate=0.1) for _ in range(2))
    jitted, step = jax.jit(train_step), fw.jit(train_step)
    for _ in range(3):
        plain = jitted(plain, x)
        step(lifted, x)
    assert fw.tree_equal(plain, lifted)


def loop(init: jax.Array, lower: int) -> jax.Array:
    return jax.lax.fori_loop(lower, 1, lambda _, y: y + 1, init)


@pytest.mark.parametrize("inner_jit", [False, True])
@pytest.mark.parametrize("outer_jit", [False, True])
@pytest.mark.parametrize("grad_inside", [False, True])
def test_c_the_gradient_of_a_loop_is_one_in_all_combinations(
    inner_jit: bool, outer_jit: bool, grad_inside: bool
) -> None:
    f: Any = fw.jit(loop) if inner_jit else loop
    if grad_inside:
        g: Any = lambda: fw.grad(f)(0.0, 0)  # noqa: E731
        result = (fw.jit(g) if outer_jit else g)()
    else:
        h: Any = lambda x: f(x, 0)  # noqa: E731
        result = fw.grad(fw.jit(h) if outer_jit else h)(0.0)
    assert float(result) == 1.0


@pytest.mark.parametrize("outer", [jax.jit, fw.jit])
@pytest.mark.parametrize("gradient", [jax.grad, fw.grad])
def test_c_plain_jax_around_the_inner_function_gives_the_same(outer: Any, gradient: Any) -> None:
    f = fw.jit(loop)
    assert float(outer(lambda x: gradient(lambda x: f(x, 0))(x))(0.0)) == 1.0


def test_c_an_inner_function_called_twenty_times_is_traced_once() -> None:
    traces: list[int] = []

    @fw.jit
    def inner(model: Linear, x: jax.Array, flag: bool) -> jax.Array:
        assert flag is True
        traces.append(1)
        return model(x)[:, :1]

    @fw.jit
    def outer(models: list[Linear], x: jax.Array) -> jax.Array:
        return sum((inner(model, x, True) for model in models), jnp.zeros((4, 1)))

    models = [Linear() for _ in range(20)]
    x = jnp.ones((4, 3))
    expected = sum(model(x)[:, :1] for model in models)
    assert jnp.allclose(outer(models, x), expected, rtol=1e-6)
    assert len(traces) == 1
    assert len(inner.traces) == 1


def test_c_concrete_values_stay_concrete_through_two_levels() -> None:
    @fw.jit
    def inner(x: jax.Array, shape: tuple[int, ...], name: str, scale: float) -> tuple[jax.Array, int]:
        assert type(scale) is float
        return x.reshape(shape) * (scale if name == "double" else 1.0), shape[0]

    @fw.jit
    def middle(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        y, rows = inner(x, shape, "double", 2.0)
        assert type(rows) is int
        return y[:rows]

    @fw.jit
    def outer(x: jax.Array) -> jax.Array:
        return middle(x, (2, 3))

    assert outer(jnp.arange(6.0)).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
