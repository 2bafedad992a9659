"""Compiled methods that change their object: the change arrives, or the call raises; a tracer never stays."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import LiftError


class Counter(fw.Module):
    count: fw.State

    def __init__(self) -> None:
        self.count = jnp.zeros((), jnp.int32)
        self.label = "new"

    def __call__(self) -> jax.Array:
        self.count = self.count + 1
        return self.count

    def tick(self) -> jax.Array:
        return self()

    @fw.jit
    def compiled_tick(self) -> jax.Array:
        return self()

    def failing(self) -> jax.Array:
        self.count = self.count + 1
        self.label = "changed"
        self.extra = {"a": Counter()}
        raise RuntimeError("stopped half way")


class Learner(fw.Module):
    """Model and optimizer are attributes, as in a trainer of one's own."""

    def __init__(self) -> None:
        self.model = fw.nn.Linear(2, 1, rngs=fw.Rngs(0))
        self.optimizer = fw.Optimizer(optax.adam, self.model, learning_rate=0.1)

    def step(self, x: jax.Array) -> jax.Array:
        value, gradients = fw.value_and_grad(lambda model, x: (model(x) ** 2).mean())(self.model, x)
        self.optimizer.update(gradients)
        return value

    @fw.jit
    def compiled_step(self, x: jax.Array) -> jax.Array:
        return self.step(x)

    def step_with_inner_jit(self, x: jax.Array) -> None:
        gradients = fw.grad(lambda model, x: (model(x) ** 2).mean())(self.model, x)
        fw.jit(lambda gradients: self.optimizer.update(gradients))(gradients)


class PlainLearner:
    """The same, and no module itself."""

    def __init__(self) -> None:
        self.model = fw.nn.Linear(2, 1, rngs=fw.Rngs(0))
        self.optimizer = fw.Optimizer(optax.adam, self.model, learning_rate=0.1)

    def step(self, x: jax.Array) -> jax.Array:
        return Learner.step(self, x)  # pyright: ignore[reportArgumentType]


def values(value: Any) -> Iterator[Any]:
    """Walks all attributes, without the framework."""
    yield value
    if isinstance(value, fw.Module | PlainLearner):
        for attribute in vars(value).values():
            yield from values(attribute)
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from values(item)


def require_no_tracer(*objects: Any) -> None:
    assert not any(isinstance(value, jax.core.Tracer) for value in values(objects))


WAYS: dict[str, Callable[[Counter], Callable[[], Any]]] = {
    "jit of the object": lambda counter: fw.jit(counter),
    "jit of a method": lambda counter: fw.jit(counter.tick),
    "jit in the class": lambda counter: counter.compiled_tick,
    "jit of a jitted method": lambda counter: fw.jit(counter.compiled_tick),
    "jit of a function of the object": lambda counter: lambda: by_argument(counter),
    "jit of the method of the class": lambda counter: lambda: fw.jit(Counter.tick)(counter),
    "remat": lambda counter: fw.remat(counter),
    "remat in jit": lambda counter: lambda: fw.jit(lambda counter: fw.remat(counter.tick)())(counter),
}
by_argument = fw.jit(lambda counter: counter())


# https://github.com/google/flax/issues/3997
@pytest.mark.parametrize("way", WAYS)
def test_a_counter_that_is_called_three_times_returns_one_two_three(way: str) -> None:
    counter = Counter()
    call = WAYS[way](counter)
    assert [int(call()) for _ in range(3)] == [1, 2, 3]
    assert int(counter.count) == 3
    require_no_tracer(counter)


CLOSURES: dict[str, Callable[[Counter], Any]] = {
    "fw.jit": lambda counter: fw.jit(lambda: counter())(),
    "jax.jit": lambda counter: jax.jit(lambda: counter())(),
    "jax.jit of the object": lambda counter: jax.jit(counter)(),
    "jax.jit of a method": lambda counter: jax.jit(counter.tick)(),
    "fw.grad": lambda counter: fw.grad(lambda x: x * counter())(1.0),
    "jax.grad": lambda counter: jax.grad(lambda x: x * counter())(1.0),
    "fw.vmap": lambda counter: fw.vmap(lambda x: x * counter())(jnp.ones(2)),
    "jax.vmap": lambda counter: jax.vmap(lambda x: x * counter())(jnp.ones(2)),
    "fw.scan": lambda counter: fw.scan(lambda carry, _: (carry, counter()), 0, length=2),
    "jax.lax.scan": lambda counter: jax.lax.scan(lambda carry, _: (carry, counter()), 0, length=2),
    "fw.cond": lambda counter: fw.cond(True, lambda: counter(), lambda: 0),
    "jax.lax.cond": lambda counter: jax.lax.cond(True, lambda: counter(), lambda: 0),
    "fw.remat": lambda counter: fw.remat(lambda: counter())(),
    "jax.eval_shape": lambda counter: jax.eval_shape(lambda: counter()),
    "a jit inside of another": lambda counter: fw.jit(lambda counter: fw.jit(lambda: counter())())(counter),
}


# https://github.com/google/flax/issues/3997
@pytest.mark.parametrize("closure", CLOSURES)
def test_a_change_that_cannot_be_carried_out_raises_in_that_very_call(closure: str) -> None:
    counter = Counter()
    counter()
    with pytest.raises(LiftError, match=r"Counter\.count"):
        CLOSURES[closure](counter)
    require_no_tracer(counter)
    assert int(counter()) == 2


# https://github.com/google/flax/issues/4695
@pytest.mark.parametrize("form", ["jit of the method", "jit in the class", "jit of a function"])
def test_a_learner_with_its_optimizer_as_attribute_takes_five_steps_and_holds_no_tracer(form: str) -> None:
    learner, plain, x = Learner(), Learner(), jax.random.normal(jax.random.key(1), (4, 2))
    step: Any = {
        "jit of the method": fw.jit(learner.step),
        "jit in the class": learner.compiled_step,
        "jit of a function": lambda x: by_function(learner, x),
    }[form]
    for count in range(1, 6):
        np.testing.assert_allclose(step(x), plain.step(x), rtol=1e-5)
        require_no_tracer(learner)
        assert int(learner.optimizer.step) == count
    np.testing.assert_allclose(learner.model.weight, plain.model.weight, rtol=1e-5)


by_function = fw.jit(lambda learner, x: learner.step(x))


# https://github.com/google/flax/issues/4695
@pytest.mark.parametrize("compile", [fw.jit, jax.jit], ids=["fw.jit", "jax.jit"])
def test_an_optimizer_that_is_updated_through_a_closure_raises_and_stays_as_it_was(compile: Any) -> None:
    learner, plain, x = Learner(), PlainLearner(), jax.random.normal(jax.random.key(1), (4, 2))
    learner.step(x)
    plain.step(x)
    before = [np.array(leaf) for leaf in jax.tree.leaves((learner, plain.optimizer))]
    with pytest.raises(LiftError, match=r"Optimizer|Linear"):
        compile(plain.step)(x)
    with pytest.raises(LiftError, match=r"Optimizer|Linear"):
        compile(lambda x: learner.step(x))(x)
    with pytest.raises(LiftError, match=r"Optimizer|Linear"):
        learner.step_with_inner_jit(x)
    require_no_tracer(learner, plain)
    for old, new in zip(before, jax.tree.leaves((learner, plain.optimizer)), strict=True):
        np.testing.assert_array_equal(old, new)
    assert int(learner.optimizer.step) == int(plain.optimizer.step) == 1


FAILURES: dict[str, Callable[[Counter], Any]] = {
    "jit of the method": lambda counter: fw.jit(counter.failing)(),
    "jit of a function": lambda counter: fw.jit(lambda counter: counter.failing())(counter),
    "nested": lambda counter: fw.jit(lambda counter: fw.jit(counter.failing)())(counter),
    "grad": lambda counter: fw.grad(lambda x, counter: x * counter.failing())(1.0, counter),
    "scan": lambda counter: fw.scan(lambda counter, _: (counter, counter.failing()), counter, length=2),
    "vmap": lambda counter: fw.vmap(lambda x, c: c.failing(), in_axes=(0, None))(jnp.ones(2), counter),
    "remat": lambda counter: fw.remat(counter.failing)(),
    "cond": lambda counter: fw.cond(True, lambda c: c.failing(), lambda c: c(), counter),
}


# https://github.com/google/flax/issues/4695
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("failure", FAILURES)
def test_an_exception_in_the_middle_of_a_trace_leaves_the_object_as_it_was(failure: str, warm: bool) -> None:
    counter = Counter()
    for _ in range(2 * warm):
        counter.compiled_tick()
    with pytest.raises(RuntimeError, match="stopped half way"):
        FAILURES[failure](counter)
    assert vars(counter).keys() == {"count", "label"}
    assert counter.label == "new" and int(counter.count) == 2 * warm
    require_no_tracer(counter)
    assert int(counter.compiled_tick()) == 2 * warm + 1


# https://github.com/patrick-kidger/equinox/issues/1071
def test_there_is_no_old_state_to_go_on_from_by_mistake() -> None:
    counter = Counter()
    returned = fw.jit(lambda counter: (counter(), counter)[1])(counter)
    assert returned is counter
    assert int(returned()) == int(counter.count) == 2
