"""Changes that plain JAX loses are warned of, with attribute and line; what is not lost is not."""

import contextlib
import gc
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import framework as fw
from framework.module.lost import LostChangeWarning


class Model(fw.Module):
    weight: fw.Param
    total: fw.State
    name: str = "a"

    def __init__(self) -> None:
        self.weight, self.total = jnp.ones(3), jnp.zeros(())
        self.parts: list[Any] = [fw.nn.Dropout(0.5, rngs=fw.Rngs(0))]

    def __call__(self, x: Any) -> Any:
        self.total = self.total + x.sum()
        return (self.weight * x).sum()


def step(model: Model, x: Any) -> Any:
    return model(x)


def rename(model: Model, x: Any) -> Any:
    model.name = "b"
    return x


def grow(model: Model, x: Any) -> Any:
    model.parts.append(fw.nn.Linear(1, 1, rngs=fw.Rngs(0)))
    return x


def dropout(model: Model, x: Any) -> Any:
    return model.parts[0](x)


@pytest.mark.parametrize(
    ("transform", "function", "place"),
    [
        (jax.jit, step, "Model.total (test_lost.py:"),
        (lambda f: jax.grad(f, allow_int=True), step, "Model.total (test_lost.py:"),
        (lambda f: jax.vmap(f, (None, 0)), step, "Model.total (test_lost.py:"),
        (jax.checkpoint, step, "Model.total (test_lost.py:"),
        (lambda f: lambda m, x: jax.eval_shape(f, m, x), step, "Model.total (test_lost.py:"),
        (jax.jit, rename, "Model.name (test_lost.py:"),
        (jax.jit, grow, "List (test_lost.py:"),
        (jax.jit, dropout, "Stream.count (test_lost.py:"),
    ],
)
def test_a_change_that_plain_jax_loses_is_warned_of(transform: Any, function: Any, place: str) -> None:
    def anew(model: Model, x: Any) -> Any:  # JAX would not trace a function a second time
        return function(model, x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(TypeError):  # keys have no gradient, which JAX says after the change was made
            transform(anew)(Model(), jnp.ones(3))
        gc.collect()
    texts = [str(one.message) for one in caught if one.category is LostChangeWarning]
    assert len(texts) == 1 and texts[0].startswith(f"a change was lost: {place}")
    assert "Use `fw.jit`, `fw.grad` and the other `fw` transformations" in texts[0]


def returned(model: Model, x: Any) -> Any:
    return model, model(x)


def evaluated(model: Model, x: Any) -> Any:
    with model.eval():
        return model.parts[0](x)


def helper(model: Model, x: Any) -> Any:
    other = Model()
    return other(x)


def carried(model: Model, x: Any) -> Any:
    return jax.lax.scan(lambda model, x: (model, model(x)), model, x)


def mapped(model: Model, x: Any) -> Any:
    other = jax.tree.map(lambda leaf: leaf, model)
    return other(x)


@pytest.mark.parametrize("function", [returned, evaluated, helper, carried, mapped, lambda model, x: x * model.weight])
def test_no_warning_where_nothing_is_lost(function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(function)(Model(), jnp.ones(3))
        fw.jit(function)(Model(), jnp.ones(3))
        gc.collect()


def test_lifted_transformations_lose_nothing_and_warn_of_nothing() -> None:
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fw.jit(step)(model, jnp.ones(3))
        fw.grad(step)(model, jnp.ones(3))
        gc.collect()
    assert float(model.total) == 6.0
