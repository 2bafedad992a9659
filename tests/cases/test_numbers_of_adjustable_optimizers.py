"""An optimizer whose learning rate can be set computes what optax computes, in every precision."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw

START, GRADIENTS = [1.0, 1.0, -2.0], [[1.0, 1.0, 0.5], [1.0, -0.5, 2.0], [1.0, 0.25, -1.0]]


class Weights(fw.Module):
    w: fw.Param

    def __init__(self, dtype: Any) -> None:
        self.w = jnp.asarray(START, dtype)


def train(optimizer: fw.Optimizer) -> list[np.ndarray]:
    step = fw.jit(lambda optimizer, gradient: optimizer.update({"w": gradient}))
    found = []
    for gradient in GRADIENTS:
        model: Any = optimizer.model
        step(optimizer, jnp.asarray(gradient, model.w.dtype))
        found.append(np.asarray(model.w.astype(jnp.float32)))
    assert len(step.traces) == 1
    return found


def plain_optax(transformation: optax.GradientTransformation, dtype: Any) -> list[np.ndarray]:
    @jax.jit
    def step(w: Any, state: Any, gradient: Any) -> Any:
        updates, state = transformation.update(gradient, state, w)
        return optax.apply_updates(w, updates), state

    w: Any = {"w": jnp.asarray(START, dtype)}
    state, found = transformation.init(w), []
    for gradient in GRADIENTS:
        w, state = step(w, state, {"w": jnp.asarray(gradient, dtype)})
        found.append(np.asarray(w["w"].astype(jnp.float32)))
    return found


def adam_in_float64(rate: float, decay: float = 0.0, b1: float = 0.9, b2: float = 0.999) -> list[np.ndarray]:
    w, m, v, found = np.array(START), np.zeros(3), np.zeros(3), []
    for count, gradient in enumerate(np.array(GRADIENTS), 1):
        m, v = b1 * m + (1 - b1) * gradient, b2 * v + (1 - b2) * gradient**2
        w = w - rate * (m / (1 - b1**count) / (np.sqrt(v / (1 - b2**count)) + 1e-8) + decay * w)
        found.append(w)
    return found


FACTORIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (optax.sgd, {}),
    "momentum": (optax.sgd, {"momentum": 0.9, "nesterov": True}),
    "adam": (optax.adam, {}),
    "adam with other constants": (optax.adam, {"b1": 0.8, "b2": 0.95, "eps": 1e-3}),
    "adamw": (optax.adamw, {"weight_decay": 0.1}),
    "lion": (optax.lion, {}),
    "rmsprop": (optax.rmsprop, {}),
}


# https://github.com/google-deepmind/optax/issues/1532
@pytest.mark.parametrize("name", FACTORIES)
def test_an_adjustable_rate_changes_no_bit_in_float32(name: str) -> None:
    factory, keywords = FACTORIES[name]
    adjustable = train(fw.Optimizer(factory, Weights(jnp.float32), learning_rate=0.1, **keywords))
    finished = train(fw.Optimizer(factory(0.1, **keywords), Weights(jnp.float32)))
    for one, two, three in zip(adjustable, finished, plain_optax(factory(0.1, **keywords), jnp.float32), strict=True):
        np.testing.assert_array_equal(one, three)
        np.testing.assert_array_equal(two, three)


# https://github.com/google-deepmind/optax/issues/1414
def test_one_step_of_adam_in_bfloat16_is_the_one_of_plain_optax_and_not_nan() -> None:
    first = train(fw.Optimizer(optax.adam, Weights(jnp.bfloat16), learning_rate=0.1))[0]
    np.testing.assert_array_equal(first[:2], [0.8984375, 0.8984375])


# https://github.com/google-deepmind/optax/issues/1414
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-6), (jnp.bfloat16, 0.02), (jnp.float16, 0.004)])
@pytest.mark.parametrize(("factory", "decay"), [(optax.adam, 0.0), (optax.adamw, 0.1)], ids=["adam", "adamw"])
def test_three_steps_are_those_of_a_computation_in_float64(
    factory: Any, decay: float, dtype: Any, tolerance: float
) -> None:
    keywords = {"weight_decay": decay} if decay else {}
    if dtype == jnp.float16:
        keywords["eps"] = 1e-4  # 1e-8 is zero in float16, in plain optax as well
    optimizer = fw.Optimizer(factory, Weights(dtype), learning_rate=0.1, **keywords)
    assert optimizer.learning_rate is not None and optimizer.learning_rate.dtype == jnp.float32
    for actual, expected in zip(train(optimizer), adam_in_float64(0.1, decay), strict=True):
        np.testing.assert_allclose(actual, expected, atol=2 * tolerance, rtol=tolerance)
    assert optimizer.model.w.dtype == dtype  # pyright: ignore[reportAttributeAccessIssue]
    assert optimizer.learning_rate.dtype == jnp.float32
    # The other constants are Python numbers, which no parameter can round.
    optimizer.keywords = {"b1": 0.9, "b2": 0.999}
    assert [type(value) for value in optimizer.keywords.values()] == [float, float]
    assert optimizer.keywords["b2"] == 0.999


# https://github.com/google-deepmind/optax/issues/415
@pytest.mark.parametrize("wrap", [fw.jit, lambda f: f], ids=["compiled", "plain"])
def test_update_number_i_uses_the_schedule_at_i_from_zero_on(wrap: Any) -> None:
    optimizer = fw.Optimizer(optax.sgd, Weights(jnp.float32), learning_rate=lambda count: count)
    step = wrap(lambda optimizer: optimizer.update({"w": jnp.ones(3)}))
    model, changes, rates = optimizer.model, [], []
    for _ in range(4):
        before = np.asarray(model.w)  # pyright: ignore[reportAttributeAccessIssue]
        step(optimizer)
        changes.append(float((before - model.w)[0]))  # pyright: ignore[reportAttributeAccessIssue]
        rates.append(float(optimizer.learning_rate))  # pyright: ignore[reportArgumentType]
    assert changes == rates == [0.0, 1.0, 2.0, 3.0]


# https://github.com/google-deepmind/optax/issues/415
def test_the_schedule_goes_on_where_it_was_after_a_checkpoint(tmp_path: Path) -> None:
    def make() -> fw.Optimizer:
        return fw.Optimizer(optax.adam, Weights(jnp.float32), learning_rate=lambda count: 0.1 * (count + 1))

    whole, half, rest = make(), make(), make()
    update: Any = fw.jit(lambda optimizer: optimizer.update({"w": jnp.ones(3)}))
    for _ in range(4):
        update(whole)
    for _ in range(2):
        update(half)
    with fw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, half, wait=True)
        checkpoints.restore(rest)
    for _ in range(2):
        update(rest)
    np.testing.assert_array_equal(rest.model.w, whole.model.w)  # pyright: ignore[reportAttributeAccessIssue]
    assert float(rest.learning_rate) == float(whole.learning_rate)  # pyright: ignore[reportArgumentType]
