"""Changing a model between compiled steps: the next call sees it, with exactly one trace and a line in the diary."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw


class Block(fw.Module):
    def __init__(self, width: int, *, rngs: fw.Rngs) -> None:
        self.linear = fw.nn.Linear(width, width, rngs=rngs)
        self.activation = jnp.tanh

    def __call__(self, x: Any) -> Any:
        return self.activation(self.linear(x))


class Model(fw.Module):
    def __init__(self) -> None:
        rngs = fw.Rngs(0)
        self.blocks = [Block(4, rngs=rngs) for _ in range(2)]
        self.head = fw.nn.Linear(4, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class LowRank(fw.Module):
    """A linear layer that stays as it is, and a trained product of two small matrices beside it."""

    down: fw.Param
    up: fw.Param

    def __init__(self, inner: fw.nn.Linear, rank: int) -> None:
        self.inner = inner
        self.down = jnp.full((inner.weight.shape[0], rank), 0.1)
        self.up = jnp.zeros((rank, inner.weight.shape[1]))

    def __call__(self, x: Any) -> Any:
        return self.inner(x) + x @ self.down @ self.up


def replace(model: Model) -> None:
    model.head = fw.nn.Linear(4, 3, rngs=fw.Rngs(1))


def insert_low_rank(model: Model) -> None:
    model.blocks[0].linear = LowRank(model.blocks[0].linear, 1)


def append(model: Model) -> None:
    model.blocks.append(Block(4, rngs=fw.Rngs(2)))


def remove(model: Model) -> None:
    del model.blocks[0]


def swap_activation(model: Model) -> None:
    model.blocks[1].activation = jnp.sin


def halve(model: Model) -> None:
    fw.update(model, {path: leaf.astype(jnp.bfloat16) for path, leaf in fw.select(model).items()})


def share(model: Model) -> None:
    model.blocks[1].linear = model.blocks[0].linear


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (replace, "head.weight: float32[4, 2] -> float32[4, 3]"),
        (insert_low_rank, "blocks.0.linear (class): Linear -> LowRank"),
        (append, "blocks.2 (class): absent -> Block"),
        (remove, "blocks.1 (class): Block -> absent"),
        (swap_activation, "blocks.1.activation: tanh -> sin"),
        (halve, "head.weight: float32[4, 2] -> bfloat16[4, 2]"),
        (share, "blocks.1.linear.weight: float32[4, 4] -> absent"),
    ],
)
def test_the_next_call_sees_a_change_with_one_trace_and_a_line_in_the_diary(
    change: Callable[[Model], None], named: str
) -> None:
    @fw.jit
    def forward(model: Model, x: Any) -> Any:
        return model(x)

    model, x = Model(), jnp.ones((3, 4))
    forward(model, x)
    forward(model, x)
    assert len(forward.traces) == 1
    change(model)
    for _ in range(3):
        result = forward(model, x)
    assert len(forward.traces) == 2
    assert named in str(forward.traces[1])
    np.testing.assert_allclose(
        np.asarray(result, np.float32), np.asarray(model(x), np.float32), rtol=1e-2 if change is halve else 1e-6
    )


def test_freezing_by_pattern_between_steps_trains_the_rest_and_can_be_undone() -> None:
    @fw.jit
    def step(model: Model, optimizer: fw.Optimizer, x: Any) -> None:
        optimizer.update(fw.grad(lambda model: (model(x) ** 2).sum(), wrt=optimizer.wrt)(model))

    model, x = Model(), jnp.ones((3, 4))
    everything = fw.Optimizer(optax.sgd, model, learning_rate=0.1)
    head_only = fw.Optimizer(optax.sgd, model, learning_rate=0.1, wrt="head.*")
    step(model, everything, x)
    before = {path: np.asarray(leaf) for path, leaf in fw.select(model).items()}
    step(model, head_only, x)
    after = fw.select(model)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {"head.weight", "head.bias"}
    step(model, everything, x)
    assert not np.array_equal(before["blocks.0.linear.weight"], fw.select(model)["blocks.0.linear.weight"])
    assert len(step.traces) == 2


def test_a_low_rank_adapter_is_trained_and_the_layer_in_it_is_not() -> None:
    model, x = Model(), jnp.ones((3, 4))
    expected = model(x)
    for block in model.blocks:
        block.linear = LowRank(block.linear, 1)
    np.testing.assert_allclose(model(x), expected)  # it begins at zero
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.1, wrt=("*.down", "*.up"))
    before = {path: np.asarray(leaf) for path, leaf in fw.select(model).items()}

    @fw.jit
    def step(optimizer: fw.Optimizer, x: Any) -> Any:
        loss, gradient = fw.value_and_grad(lambda model: (model(x) ** 2).sum(), wrt=optimizer.wrt)(optimizer.model)
        optimizer.update(gradient)
        return loss

    losses = [float(step(optimizer, x)) for _ in range(5)]
    assert losses[-1] < losses[0] and len(step.traces) == 1
    after = fw.select(model)
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {f"blocks.{index}.linear.{name}" for index in (0, 1) for name in ("down", "up")}
