"""Random streams inside of transformations: the draws of plain Python, each once, and no tracer left behind."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import LiftError


class Noisy(fw.Module):
    """A module with streams as a field."""

    weight: fw.Param

    def __init__(self, rngs: fw.Rngs) -> None:
        self.weight = jnp.ones(())
        self.rngs = rngs

    def draw(self) -> jax.Array:
        return jax.random.normal(self.rngs.noise())


class Owner(fw.Task):
    """A task that draws in its loss: what a trainer compiles."""

    def __init__(self, rngs: fw.Rngs) -> None:
        model = Noisy(rngs)
        super().__init__(model, fw.Optimizer(optax.sgd, model, learning_rate=0.0))

    def loss(self, model: Any, batch: Any) -> jax.Array:
        return model.weight * model.draw()


class Plain:
    """An object that is no module and owns one."""

    def __init__(self, rngs: fw.Rngs) -> None:
        self.rngs = rngs

    def draw(self, _: Any) -> jax.Array:
        return jax.random.normal(self.rngs.noise())


def normal(rngs: fw.Rngs) -> jax.Array:
    return jax.random.normal(rngs.noise())


def eager(count: int, seed: int = 0) -> tuple[list[float], fw.Rngs]:
    """Draws with JAX outside of every transformation."""
    rngs = fw.Rngs(seed)
    return [float(normal(rngs)) for _ in range(count)], rngs


def values(value: Any) -> Iterator[Any]:
    """Walks all attributes, without the framework."""
    yield value
    if isinstance(value, fw.Module):
        for attribute in vars(value).values():
            yield from values(attribute)
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from values(item)


def require_no_tracer(*objects: Any) -> None:
    assert not any(isinstance(value, jax.core.Tracer) for value in values(objects))


def require_state_after(rngs: fw.Rngs, count: int) -> None:
    require_no_tracer(rngs)
    expected = eager(count)[1].noise
    assert int(rngs.noise.count) == int(expected.count) == count
    assert bool(rngs.noise.key == expected.key)


# https://github.com/jax-ml/jax/pull/1133
@pytest.mark.parametrize("place", ["argument", "field", "method of a field", "plain jit"])
def test_compiled_draws_and_the_key_after_them_are_those_of_plain_python(place: str) -> None:
    rngs = fw.Rngs(0)
    noisy = Noisy(rngs)
    compiled: Any = {"argument": fw.jit(normal), "field": fw.jit(lambda noisy: normal(noisy.rngs))}
    draws = []
    plain = jax.jit(lambda rngs: (normal(rngs), rngs))
    for _ in range(5):
        if place == "plain jit":
            draw, rngs = plain(rngs)
        elif place == "method of a field":
            draw = fw.jit(noisy.draw)()
        else:
            draw = compiled[place](rngs if place == "argument" else noisy)
        draws.append(float(draw))
    assert draws == eager(5)[0]
    require_state_after(rngs, 5)


# https://github.com/jax-ml/jax/pull/4312
def test_a_task_draws_anew_at_each_step_as_in_plain_python() -> None:
    task = Owner(fw.Rngs(0))
    step = fw.jit(task.train_step)
    draws = [float(step({"x": jnp.ones(2)})) for _ in range(5)]
    assert draws == eager(5)[0]
    require_no_tracer(task)
    require_state_after(task.model.rngs, 5)  # pyright: ignore[reportAttributeAccessIssue]


# https://github.com/jax-ml/jax/pull/1133
@pytest.mark.parametrize("used", [False, True], ids=["new stream", "used stream"])
@pytest.mark.parametrize("transform", ["fw.jit", "jax.jit", "fw.grad", "jax.grad", "fw.vmap", "jax.vmap", "fw.scan"])
def test_a_stream_that_is_reached_by_closure_is_an_error_at_the_first_call(transform: str, used: bool) -> None:
    rngs = fw.Rngs(0)
    if used:
        normal(rngs)
    owner = Plain(rngs)
    call: Any = {
        "fw.jit": lambda: fw.jit(owner.draw)(1.0),
        "jax.jit": lambda: jax.jit(owner.draw)(1.0),
        "fw.grad": lambda: fw.grad(lambda x: x * normal(rngs))(1.0),
        "jax.grad": lambda: jax.jit(jax.grad(lambda x: x * normal(rngs)))(1.0),
        "fw.vmap": lambda: fw.vmap(lambda x: x * normal(rngs))(jnp.ones(2)),
        "jax.vmap": lambda: jax.vmap(lambda x: x * normal(rngs))(jnp.ones(2)),
        "fw.scan": lambda: fw.scan(lambda carry, x: (carry, x * normal(rngs)), 0.0, jnp.ones(2)),
    }[transform]
    with pytest.raises(LiftError, match=r"Rngs|Stream"):
        call()
    require_no_tracer(rngs)
    assert float(normal(rngs)) == eager(2)[0][int(used)]


# https://github.com/jax-ml/jax/pull/1133
@pytest.mark.parametrize("compiled", [False, True])
def test_eight_elements_of_a_batch_get_eight_draws(compiled: bool) -> None:
    def batch(rngs: fw.Rngs) -> jax.Array:
        return fw.vmap(lambda rngs, x: x + normal(rngs), in_axes=(None, 0))(rngs, jnp.zeros(8))

    rngs = fw.Rngs(0)
    rngs.stream("noise")
    first, second = [(fw.jit(batch) if compiled else batch)(rngs) for _ in range(2)]
    assert len({*first.tolist(), *second.tolist()}) == 16
    require_state_after(rngs, 2)


# https://github.com/jax-ml/jax/pull/1133
@pytest.mark.parametrize("loop", ["scan", "fori_loop", "while_loop"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_of_five_gives_the_five_draws_of_plain_python(compiled: bool, loop: str) -> None:
    def scan(rngs: fw.Rngs) -> jax.Array:
        return fw.scan(lambda rngs, _: (rngs, normal(rngs)), rngs, length=5)[1]

    def fori_loop(rngs: fw.Rngs) -> jax.Array:
        return fw.fori_loop(0, 5, lambda i, carry: (carry[0], carry[1].at[i].set(normal(carry[0]))), (rngs, empty))[1]

    def while_loop(rngs: fw.Rngs) -> jax.Array:
        def body(carry: Any) -> Any:
            rngs, i, draws = carry
            return rngs, i + 1, draws.at[i].set(normal(rngs))

        return fw.while_loop(lambda carry: carry[1] < 5, body, (rngs, 0, empty))[2]

    empty = jnp.zeros(5)
    function = {"scan": scan, "fori_loop": fori_loop, "while_loop": while_loop}[loop]
    rngs = fw.Rngs(0)
    rngs.stream("noise")
    assert (fw.jit(function) if compiled else function)(rngs).tolist() == eager(5)[0]
    require_state_after(rngs, 5)


# https://github.com/jax-ml/jax/pull/1133
@pytest.mark.parametrize("compiled", [False, True])
def test_recomputation_uses_the_mask_of_the_forward_pass(compiled: bool) -> None:
    def masked(rngs: fw.Rngs, x: jax.Array) -> jax.Array:
        # The derivative of the sine is computed from the recomputed input: another mask would show.
        return jnp.sin(jnp.where(jax.random.bernoulli(rngs.noise(), 0.5, x.shape), x, 0.0))

    def gradient(rngs: fw.Rngs, x: jax.Array) -> Any:
        def loss(x: jax.Array, rngs: fw.Rngs) -> tuple[jax.Array, jax.Array]:
            y = fw.remat(masked)(rngs, x)
            return y.sum(), y

        (_, y), slope = fw.value_and_grad(loss, has_aux=True)(x, rngs)
        return y, slope

    rngs, x = fw.Rngs(0), jnp.arange(1.0, 33.0)
    rngs.stream("noise")
    y, slope = (fw.jit(gradient) if compiled else gradient)(rngs, x)
    mask = np.asarray(jax.random.bernoulli(fw.Rngs(0).noise(), 0.5, x.shape))
    np.testing.assert_allclose(y, np.where(mask, np.sin(x), 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope, np.where(mask, np.cos(x), 0), rtol=1e-5, atol=1e-6)
    require_state_after(rngs, 1)


# https://github.com/jax-ml/jax/issues/1141
def test_a_seed_never_comes_from_the_clock() -> None:
    assert float(normal(fw.Rngs())) == float(normal(fw.Rngs())) == eager(1)[0][0]
