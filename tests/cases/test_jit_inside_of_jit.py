"""A `jit` inside of another never turns Python values into tracers, and never changes a gradient."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import framework as fw

OUTER: dict[str, Callable[..., Any]] = {"plain": lambda f: f, "fw.jit": fw.jit, "jax.jit": jax.jit}
INNER: dict[str, Callable[..., Any]] = {
    "plain": lambda f: f,
    "cached": fw.jit,
    "inline": fw.jit(nested="inline"),
    "twice": lambda f: fw.jit(fw.jit(f)),
}


COMBINATIONS = list(itertools.product(OUTER, INNER))
LOOPS: dict[str, Callable[..., Any]] = {"jax.lax.fori_loop": jax.lax.fori_loop, "fw.fori_loop": fw.fori_loop}


# https://github.com/jax-ml/jax/issues/9298
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("outer", "inner"), COMBINATIONS)
def test_the_gradient_of_a_loop_with_a_python_bound_is_one_in_every_combination(
    outer: str, inner: str, loop: str
) -> None:
    kinds: list[type] = []

    def run(x: jax.Array, lower: int, *, upper: int) -> jax.Array:
        kinds.extend([type(lower), type(upper)])
        return LOOPS[loop](lower, upper, lambda i, value: value + 0 * i, x)

    wrapped = INNER[inner](run)
    by_fw = OUTER[outer](lambda x: fw.grad(lambda x: wrapped(x, 0, upper=5))(x))
    by_jax = OUTER[outer](jax.grad(lambda x: wrapped(x, 0, upper=5)))
    assert float(by_fw(2.0)) == float(by_jax(2.0)) == 1.0
    assert set(kinds) == {int}


class Power(fw.Module):
    """Multiplies by its weight `n_steps` times, so that the gradient is `n * w ** (n - 1)`."""

    weight: fw.Param
    n_steps: int

    def __init__(self, n_steps: int) -> None:
        self.weight = jnp.float32(3.0)
        self.n_steps = n_steps

    def forward(self, x: jax.Array) -> jax.Array:
        assert type(self.n_steps) is int
        return fw.fori_loop(0, self.n_steps, lambda _, carry: (carry[0], carry[1] * carry[0].weight), (self, x))[1]

    @fw.jit
    def compiled(self, x: jax.Array) -> jax.Array:
        return self.forward(x)

    @fw.jit
    def compiled_twice(self, x: jax.Array) -> jax.Array:
        return self.compiled(x)


# https://github.com/jax-ml/jax/issues/9298
@pytest.mark.parametrize("outer", ["plain", "fw.jit"])
@pytest.mark.parametrize("method", ["forward", "compiled", "compiled_twice"])
def test_a_hyperparameter_stays_an_integer_in_a_nested_method_under_differentiation(outer: str, method: str) -> None:
    def step(power: Power, x: jax.Array) -> Any:
        return fw.grad(lambda power, x: getattr(power, method)(x))(power, x)

    run = OUTER[outer](step)
    power = Power(2)
    for n_steps in (2, 3, 2):
        power.n_steps = n_steps
        assert float(run(power, jnp.float32(1.0))["weight"]) == n_steps * 3.0 ** (n_steps - 1)
    if outer == "fw.jit":
        assert len(run.traces) == 2


# https://github.com/jax-ml/jax/issues/4798
@pytest.mark.parametrize(("outer", "inner"), [(outer, inner) for outer, inner in COMBINATIONS if outer != "plain"])
def test_shapes_flags_and_names_stay_what_they_are_through_two_levels(outer: str, inner: str) -> None:
    def lowest(x: jax.Array, shape: tuple[int, ...], options: dict[str, Any], *, negate: bool) -> jax.Array:
        assert [type(n) for n in shape] == [int, int] and type(negate) is bool
        x = x.reshape(shape)
        if negate:
            x = -x
        return getattr(jnp, options["reduce"])(x, axis=options["axes"][0])

    bottom = INNER[inner](lowest)
    middle = INNER[inner](lambda x, shape, negate: bottom(x, shape, {"reduce": "sum", "axes": [1]}, negate=negate))
    top = OUTER[outer](lambda x: [middle(x, (2, 3), negate) for negate in (False, True)])
    assert [y.tolist() for y in top(jnp.arange(6.0))] == [[3.0, 12.0], [-3.0, -12.0]]


# https://github.com/jax-ml/jax/issues/9298
@pytest.mark.parametrize("trace", ["grad", "vmap", "scan", "cond", "remat", "eval_shape"])
def test_inside_of_every_transformation_a_python_value_is_part_of_the_inner_call(trace: str) -> None:
    kinds: list[type] = []

    @fw.jit
    def inner(x: jax.Array, repeat: int) -> jax.Array:
        kinds.append(type(repeat))
        for _ in range(repeat):
            x = x * 2.0
        return x

    def body(x: jax.Array) -> jax.Array:
        return inner(x, 3)

    result = {
        "grad": lambda: fw.grad(body)(1.0),
        "vmap": lambda: fw.vmap(body)(jnp.ones(2))[0],
        "scan": lambda: fw.scan(lambda carry, x: (carry, body(x)), 0.0, jnp.ones(2))[1][0],
        "cond": lambda: fw.cond(True, body, lambda x: x, 1.0),
        "remat": lambda: fw.remat(body)(1.0),
        "eval_shape": lambda: 8.0 if jax.eval_shape(body, 1.0).shape == () else None,
    }[trace]()
    assert float(result) == 8.0
    assert set(kinds) <= {int}
