"""Lazy initialisation: one compilation of the step, and what a plain call does."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw


class Lazy(fw.Module):
    """A layer that learns its input size at the first call."""

    weight: fw.Param
    calls: fw.State
    ready: bool = False

    def __init__(self, out: int, *, rngs: fw.Rngs) -> None:
        self.out, self.rngs = out, rngs
        self.calls = jnp.zeros((), jnp.int32)

    def __call__(self, x: Any) -> Any:
        if not self.ready:
            self.weight = jax.random.normal(self.rngs.params(), (x.shape[-1], self.out))
            self.ready = True
        self.calls = self.calls + 1
        return jnp.tanh(x @ self.weight)


class Model(fw.Module):
    def __init__(self, rngs: fw.Rngs | None = None) -> None:
        rngs = rngs or fw.Rngs(0)
        rngs.params
        rngs.dropout
        self.layers = [Lazy(8, rngs=rngs), Lazy(8, rngs=rngs)]
        self.dropout = fw.nn.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.dropout(layer(x))
        return x.sum()


def step(model: Model, x: Any) -> Any:
    model(x)  # before this, there is nothing to differentiate
    loss, gradient = fw.value_and_grad(lambda model: model(x))(model)
    fw.update(model, {path: leaf - 0.1 * gradient[path] for path, leaf in fw.select(model, fw.Param).items()})
    return loss


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Lists the programs that XLA compiles, or takes from the cache on disk."""
    names: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if text.startswith("Finished XLA compilation of"):
                names.append(text.split()[4])

    handler, logger = Handler(), logging.getLogger("jax._src.dispatch")
    logger.addHandler(handler)
    with jax.log_compiles():
        yield names
    logger.removeHandler(handler)


def forward(model: Model, x: Any) -> Any:
    return model(x)


@pytest.mark.parametrize("function", [forward, step])
@pytest.mark.filterwarnings("ignore")
def test_the_step_is_compiled_once_and_does_what_plain_python_does(function: Any) -> None:
    x = jnp.linspace(-1, 1, 12).reshape(3, 4)
    plain, lifted = Model(), Model()
    compiled = fw.jit(function)
    with compilations() as names:
        results = [compiled(lifted, x) for _ in range(3)]
    expected = [function(plain, x) for _ in range(3)]
    np.testing.assert_allclose(results, expected, rtol=1e-4, atol=1e-5)
    assert [name for name in names if function.__name__ in name] == [f"jit({function.__name__})"], names
    assert lifted.layers[0].ready and int(lifted.layers[0].calls) == int(plain.layers[0].calls)
    for path, leaf in fw.select(plain).items():
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(leaf, fw.select(lifted)[path], rtol=1e-4, atol=1e-5, err_msg=path)


def test_another_new_object_uses_the_same_programs() -> None:
    compiled, x = fw.jit(step), jnp.ones((3, 4))
    compiled(Model(), x)
    traces = len(compiled.traces)
    other, plain = Model(fw.Rngs(7)), Model(fw.Rngs(7))
    np.testing.assert_allclose(compiled(other, x), step(plain, x), rtol=1e-5)
    assert len(compiled.traces) == traces == 2


class Awkward(fw.Module):
    """What cannot be split: the first call is another computation than the later ones."""

    value: fw.State
    total: fw.State
    mode: str

    def __init__(self, mode: str) -> None:
        self.mode, self.total = mode, jnp.zeros(3)

    def __call__(self, x: Any) -> Any:
        if "value" not in vars(self):
            self.value = x * 2
            if self.mode == "another result":
                return x
            if self.mode == "another state":
                self.total = self.total + 5
            if self.mode == "overwritten":
                self.value = self.value + 1
            if self.mode == "printed":
                jax.debug.callback(printed.append, x)
        self.total = self.total + self.value
        return x * self.value


printed: list[Any] = []


@pytest.mark.parametrize("mode", ["same", "another result", "another state", "overwritten", "printed"])
def test_a_first_call_that_is_another_computation_is_what_it_is_in_plain_python(mode: str) -> None:
    plain, lifted = Awkward(mode), Awkward(mode)
    compiled, x = fw.jit(lambda module, x: module(x)), jnp.arange(3.0)
    printed.clear()
    for _ in range(2):
        np.testing.assert_array_equal(compiled(lifted, x), plain(x))
        np.testing.assert_array_equal(lifted.total, plain.total)
        np.testing.assert_array_equal(lifted.value, plain.value)
    jax.effects_barrier()
    assert len(printed) == (2 if mode == "printed" else 0)  # once each
