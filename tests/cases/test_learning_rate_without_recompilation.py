"""The learning rate is a value and not a constant of the program, and no step of a run is compiled anew."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.monitor import Records, read_records


class Weight(fw.Module):
    w: fw.Param

    def __init__(self, value: Any = 1.0) -> None:
        self.w = jnp.asarray(value, jnp.float32)


class Descent(fw.Task):
    """A loss whose gradient is 1 everywhere."""

    def loss(self, model: Any, batch: Any) -> jax.Array:
        return model.w.sum() + 0 * batch["x"].sum()


def data() -> fw.data.ArrayBatches:
    return fw.data.ArrayBatches({"x": np.zeros((4, 1), np.float32)}, 2, shuffle=False)


OPTIMIZERS: dict[str, Callable[[fw.Module], fw.Optimizer]] = {
    "sgd": lambda m: fw.Optimizer(optax.sgd, m, learning_rate=0.1),
    "momentum": lambda m: fw.Optimizer(optax.sgd, m, learning_rate=0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: fw.Optimizer(optax.adam, m, learning_rate=0.1),
    "adamw": lambda m: fw.Optimizer(optax.adamw, m, learning_rate=0.1, weight_decay=1e-4, clip_norm=1.0),
    "lamb": lambda m: fw.Optimizer(optax.lamb, m, learning_rate=0.1),
    "lion": lambda m: fw.Optimizer(optax.lion, m, learning_rate=0.1),
    "rmsprop": lambda m: fw.Optimizer(optax.rmsprop, m, learning_rate=0.1, centered=True, momentum=0.9),
    "adagrad": lambda m: fw.Optimizer(optax.adagrad, m, learning_rate=0.1),
    "adadelta": lambda m: fw.Optimizer(optax.adadelta, m, learning_rate=0.1),
    "novograd": lambda m: fw.Optimizer(optax.novograd, m, learning_rate=0.1),
    "adafactor": lambda m: fw.Optimizer(optax.adafactor, m, learning_rate=0.1),
    "noisy": lambda m: fw.Optimizer(optax.noisy_sgd, m, learning_rate=0.1, key=0),
    "accumulated": lambda m: fw.Optimizer(optax.MultiSteps(optax.adam(0.1), 2).gradient_transformation(), m),
    "averaged": lambda m: fw.Optimizer(optax.chain(optax.adam(0.1), optax.ema(0.9)), m),
    "checked for NaN": lambda m: fw.Optimizer(optax.apply_if_finite(optax.adam(0.1), 3), m),
}
SCHEDULES: dict[str, Callable[[], Any]] = {
    "constant": lambda: optax.constant_schedule(0.1),
    "cosine": lambda: optax.cosine_decay_schedule(0.1, 10),
    "warm-up": lambda: optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10),
    "piecewise": lambda: optax.piecewise_constant_schedule(0.1, {2: 0.5}),
    "exponential": lambda: optax.exponential_decay(0.1, 3, 0.5, staircase=True),
    "joined": lambda: optax.join_schedules([optax.linear_schedule(0, 0.1, 2), optax.constant_schedule(0.1)], [2]),
    "a function": lambda: lambda count: 0.1 / (1 + count),
    "a function of integers": lambda: lambda count: count,
}


# https://github.com/google-deepmind/optax/issues/577
@pytest.mark.parametrize("wrap", [fw.jit, lambda f: f], ids=["compiled", "plain"])
def test_three_rates_by_assignment_cost_one_trace_and_give_the_weights_by_hand(wrap: Any) -> None:
    model = Weight()
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.5)
    step = wrap(lambda optimizer: optimizer.update(fw.grad(lambda m: m.w.sum())(optimizer.model)))
    results = []
    for rate in (0.1, jnp.float32(0.2), np.float64(0.3)):
        fw.update(model, {"w": jnp.float32(1.0)})
        optimizer.learning_rate = rate
        step(optimizer)
        results.append(float(model.w))
    np.testing.assert_allclose(results, [0.9, 0.8, 0.7], rtol=1e-6)
    if wrap is fw.jit:
        assert len(step.traces) == 1


# https://github.com/google-deepmind/optax/issues/577
def test_a_sweep_over_new_optimizers_costs_one_trace_too() -> None:
    step = fw.jit(lambda optimizer: optimizer.update(fw.grad(lambda m: m.w.sum())(optimizer.model)))
    results = []
    for rate in (0.1, 0.2, 1):
        model = Weight()
        step(fw.Optimizer(optax.sgd, model, learning_rate=rate))
        results.append(float(model.w))
    np.testing.assert_allclose(results, [0.9, 0.8, 0.0], rtol=1e-6)
    assert len(step.traces) == 1


def types(module: fw.Module) -> dict[str, Any]:
    return {
        path: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for path, leaf in fw.select(module).items()
    }


def require_one_trace(optimizer: fw.Optimizer) -> None:
    class Counted(Descent):
        def loss(self, model: Any, batch: Any) -> jax.Array:
            traced.append(None)
            return super().loss(model, batch)

    traced: list[None] = []
    task = Counted(optimizer.model, optimizer)
    before, earlier = types(task), len(fw.jit(task.train_step).__func__.traces)
    fw.Trainer(max_steps=5, log_every=1, prefetch=0).fit(task, data())
    assert len(traced) == len(fw.jit(task.train_step).__func__.traces) - earlier == 1
    after = types(task)
    assert before == after
    assert not any(weak for _, _, weak in after.values())


# https://github.com/google-deepmind/optax/issues/1440
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_five_steps_of_every_optimizer_are_one_trace_and_keep_the_types_of_all_leaves(name: str) -> None:
    require_one_trace(OPTIMIZERS[name](Weight([[1.0, 2.0]])))


# https://github.com/google-deepmind/optax/issues/1440
@pytest.mark.parametrize("name", SCHEDULES)
def test_five_steps_of_every_schedule_are_one_trace_and_equal_schedules_share_it(name: str) -> None:
    first, second = [fw.Optimizer(optax.adam, Weight(), learning_rate=SCHEDULES[name]()) for _ in range(2)]
    assert jax.tree.structure(first) == jax.tree.structure(second)
    require_one_trace(fw.Optimizer(optax.adam, Weight(), learning_rate=SCHEDULES[name]()))


# https://github.com/google-deepmind/optax/issues/577
def test_a_rate_that_was_set_is_recorded_and_comes_back_with_a_checkpoint(tmp_path: Path) -> None:
    def make() -> Descent:
        model = Weight()
        return Descent(model, fw.Optimizer(optax.sgd, model, learning_rate=0.5))

    def rates(name: str, task: Descent, max_steps: int) -> list[Any]:
        with fw.Checkpoints(tmp_path / "checkpoints", every=1) as checkpoints:
            records = Records(tmp_path / name)
            monitor = fw.monitor.Monitor([records])
            trainer = fw.Trainer(max_steps=max_steps, log_every=1, checkpoints=checkpoints, monitor=monitor)
            trainer.fit(task, data())
            monitor.close()
        return [record["learning_rate"] for record in read_records(tmp_path / name)]

    task = make()
    task.optimizer.learning_rate = 0.25  # pyright: ignore[reportOptionalMemberAccess]
    assert rates("first", task, 2) == [0.25, 0.25]
    assert float(task.model.w) == 0.5  # pyright: ignore[reportAttributeAccessIssue]
    resumed = make()
    assert rates("second", resumed, 3) == [0.25]
    assert float(resumed.model.w) == 0.25  # pyright: ignore[reportAttributeAccessIssue]
