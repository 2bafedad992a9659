"""Promise 6: no silent retrace. The diary says what was different, and budgets make one too many an error."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import LiftError


class Model(fw.Module):
    weight: fw.Param
    scale: float = 1.0
    sizes: tuple[int, ...] = ()

    def __init__(self, width: int = 3) -> None:
        self.weight = jnp.ones(width)
        self.parts = [fw.nn.Dropout(0.0, rngs=fw.Rngs(0))]

    def __call__(self, x: Any, how: str = "sum") -> Any:
        y = x * self.weight * self.scale
        return y.sum() if how == "sum" else y.mean()


def forward(model: Model, x: Any, how: str = "sum") -> Any:
    return model(x, how)


CHANGES: dict[str, tuple[Callable[[Model], dict[str, Any]], str]] = {
    "a hyperparameter": (lambda model: setattr(model, "scale", 2.0) or {}, "scale: 1.0 -> 2.0"),
    "its type alone": (lambda model: setattr(model, "scale", 1) or {}, "scale: 1.0 -> 1"),
    "a tuple": (lambda model: setattr(model, "sizes", (1, 2)) or {}, "sizes: () -> (1, 2)"),
    "a new attribute": (lambda model: setattr(model, "other", "new") or {}, "other: absent -> new"),
    "a leaf's dtype": (
        lambda model: fw.update(model, {"weight": jnp.ones(3, jnp.float16)}) or {},
        "float32[3] -> float16[3]",
    ),
    "a leaf's shape": (
        lambda model: fw.update(model, {"weight": jnp.ones((3, 3))}) or {},
        "float32[3] -> float32[3, 3]",
    ),
    "a list": (lambda model: model.parts.clear() or {}, "parts.0 (class): Dropout -> absent"),
    "a mode": (lambda model: model.eval() and {}, "training: True -> False"),
    "a static argument": (lambda model: {"how": "mean"}, "static argument 0: absent -> mean"),
    "an argument's shape": (lambda model: {"x": jnp.ones((2, 3))}, "array argument 0: float32[3] -> float32[2, 3]"),
    "an argument's dtype": (lambda model: {"x": jnp.ones(3, jnp.int32)}, "array argument 0: float32[3] -> int32[3]"),
    "a weak type": (lambda model: {"x": 1.0}, "array argument 0: float32[3] -> float32[] weakly typed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_different_is_named_with_old_and_new_value(change: str) -> None:
    compiled, model = fw.jit(forward), Model()
    arguments: dict[str, Any] = {"x": jnp.ones(3)}
    compiled(model, **arguments)
    compiled(model, **arguments)
    assert len(compiled.traces) == 1 and str(compiled.traces[0]) == "trace 1: first call"
    function, text = CHANGES[change]
    arguments |= function(model) or {}
    found = compiled(model, **arguments)
    np.testing.assert_allclose(np.asarray(found, np.float32), np.asarray(forward(model, **arguments), np.float32))
    assert len(compiled.traces) == 2
    assert text in str(compiled.traces[1]).replace("'", "")


def test_setting_a_value_back_finds_the_earlier_program() -> None:
    compiled, model = fw.jit(forward), Model()
    for scale in (1.0, 2.0, 1.0, 2.0, 1.0):
        model.scale = scale
        assert float(compiled(model, jnp.ones(3))) == 3 * scale
    assert len(compiled.traces) == 2
    for _ in range(3):
        with model.eval():
            compiled(model, jnp.ones(3))
        compiled(model, jnp.ones(3))
    assert len(compiled.traces) == 3


def test_an_equal_model_or_optimizer_made_anew_is_not_traced_anew() -> None:
    @fw.jit
    def step(optimizer: fw.Optimizer, x: Any) -> None:
        optimizer.update(fw.grad(lambda model: model(x))(optimizer.model))

    def make(rate: float) -> fw.Optimizer:
        schedule = optax.cosine_decay_schedule(rate, 100)
        return fw.Optimizer(optax.adamw, Model(), learning_rate=schedule, weight_decay=1e-3, clip_norm=1.0)

    for _ in range(4):
        step(make(1e-3), jnp.ones(3))
    assert len(step.traces) == 1
    step(make(1e-2), jnp.ones(3))  # another schedule is another program
    assert len(step.traces) == 2


def test_a_budget_makes_one_trace_too_many_an_error_that_names_the_change() -> None:
    compiled, model = fw.jit(forward, max_traces=2), Model()
    compiled(model, jnp.ones(3))
    compiled(model, jnp.ones((2, 3)))
    before = model.clone()
    with pytest.raises(
        LiftError, match=r"forward was traced 3 times, and max_traces=2. The last change was: array arg.*"
    ):
        compiled(model, jnp.ones((4, 3)))
    assert fw.tree_equal(model, before)
    compiled(model, jnp.ones(3))  # what is compiled still runs


def test_a_counter_that_is_a_python_number_is_refused_with_the_remedy() -> None:
    class Counting(fw.Module):
        weight: fw.Param

        def __init__(self) -> None:
            self.weight, self.steps = jnp.ones(()), 0

        @fw.jit
        def step(self) -> Any:
            self.steps += 1
            return self.weight * self.steps

    def train() -> None:
        counting = Counting()
        for _ in range(10):
            counting.step()

    with pytest.raises(LiftError, match=r"the hyperparameter steps of step was different at each .*`steps: fw.State`"):
        train()
    assert len(Counting.step.traces) < 6


def test_a_number_that_the_caller_sets_is_as_many_programs_as_values() -> None:
    compiled, model = fw.jit(forward), Model()
    for scale in range(1, 7):
        model.scale = float(scale)
        compiled(model, jnp.ones(3))
    assert len(compiled.traces) == 6
