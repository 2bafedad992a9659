"""Hyperparameters that Python calls equal and that are not the same, and ones that change after a trace."""

import contextlib
import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import ModuleError


class Level(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass(frozen=True)
class Options:
    value: Any


def first(x: Any) -> Any:
    return x


class Scale(fw.Module):
    h: Any

    def __init__(self, h: Any) -> None:
        self.h = h

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        h = jnp.asarray(number(self.h))
        return x * number(self.h), h, x / h


def number(value: Any) -> Any:
    """Takes the number out of whatever it was put in."""
    while not isinstance(value, bool | int | float | complex):
        if isinstance(value, Options):
            value = value.value
        elif isinstance(value, functools.partial):
            value = value.args[0]
        elif callable(value):
            value = value()
        elif hasattr(value, "values"):
            value = next(iter(value.values()))
        else:
            value = next(iter(value))
    return value


NUMBERS = [1, True, 1.0, Level.ONE, 0.0, -0.0, 1 + 0j, complex(1, -0.0), 0, False]
PLACES: dict[str, Callable[[Any], Any]] = {
    "itself": first,
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "dict": lambda value: {"value": value},
    "set": lambda value: {value},
    "partial": lambda value: functools.partial(first, value),
    "frozen dataclass": Options,
    "closure": lambda value: lambda: value,
    "default of a function": lambda value: lambda v=value: v,
}


def jitted(scale: Scale, x: jax.Array) -> Any:
    return scale(x)


def nested(scale: Scale, x: jax.Array) -> Any:
    return inner(scale, x)


inner = fw.jit(jitted)
WAYS = {"lifted": fw.jit(jitted), "nested": fw.jit(nested), "plain": jax.jit(jitted)}


def require_equal(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        if not jnp.iscomplexobj(one):
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


# https://github.com/jax-ml/jax/issues/9273
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_equal_numbers_of_another_type_or_sign_give_what_plain_python_gives(place: str, way: str) -> None:
    one = Scale(PLACES[place](1))
    for value in [*NUMBERS, *NUMBERS[::-1]]:
        one.h = PLACES[place](value)
        expected = one(jnp.float32(2))
        require_equal(WAYS[way](one, jnp.float32(2)), expected)
        require_equal(WAYS[way](Scale(PLACES[place](value)), jnp.float32(2)), expected)


# https://github.com/jax-ml/jax/issues/9273
def test_the_numbers_are_the_ones_that_can_be_worked_out_by_hand() -> None:
    step = fw.jit(jitted)
    scale = Scale(1)
    dtypes, quotients = [], []
    for value in (1, True, 1.0, 0.0, -0.0):
        scale.h = value
        _, h, quotient = step(scale, jnp.float32(1))
        dtypes.append(h.dtype.name)
        quotients.append(float(quotient))
    assert dtypes == ["int32", "bool", "float32", "float32", "float32"]
    assert quotients == [1.0, 1.0, 1.0, math.inf, -math.inf]
    assert len(step.traces) == 5


# https://github.com/jax-ml/jax/issues/9273
def test_python_arguments_of_a_nested_call_are_told_apart_too() -> None:
    inside = fw.jit(lambda x, h: (x * h, jnp.asarray(h), x / jnp.asarray(h)))
    outer = fw.jit(lambda x: [inside(x, h) for h in NUMBERS])
    for actual, h in zip(outer(jnp.float32(2)), NUMBERS, strict=True):
        require_equal(actual, (jnp.float32(2) * h, jnp.asarray(h), jnp.float32(2) / jnp.asarray(h)))


@pytest.mark.parametrize("make", [lambda: math.nan, lambda: float("nan"), lambda: complex(0, math.nan)])
def test_not_a_number_is_equal_to_itself_and_costs_one_trace(make: Any) -> None:
    step = fw.jit(jitted)
    for _ in range(2):
        assert bool(jnp.isnan(step(Scale(make()), jnp.float32(1))[0]))
    assert len(step.traces) == 1


# https://github.com/jax-ml/jax/issues/28418
def test_a_changed_hyperparameter_counts_at_the_next_call_and_a_former_one_is_not_traced_again() -> None:
    step = fw.jit(lambda model, x: x + model.h)
    plain_traces: list[Any] = []

    @jax.jit
    def plain(model: Scale, x: jax.Array) -> jax.Array:
        plain_traces.append(model.h)
        return x + model.h

    model = Scale(100)
    results = []
    for h in (100, 0, 100):
        model.h = h
        results.append((int(step(model, jnp.int32(1))), int(plain(model, jnp.int32(1)))))
    assert results == [(101, 101), (1, 1), (101, 101)]
    assert len(step.traces) == len(plain_traces) == 2


class ByField:
    """Compares by a field that may change."""

    def __init__(self, h: Any) -> None:
        self.h = h

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByField) and self.h == other.h

    def __hash__(self) -> int:
        return hash(self.h)


@dataclasses.dataclass(unsafe_hash=True)
class HashedDataclass:
    h: Any


@dataclasses.dataclass
class PlainDataclass:
    h: Any


@dataclasses.dataclass
class HashedByHand:
    h: Any

    def __hash__(self) -> int:
        return hash(self.h)


# https://github.com/jax-ml/jax/issues/13992
@pytest.mark.parametrize("kind", [HashedDataclass, PlainDataclass, HashedByHand])
def test_a_dataclass_that_can_be_changed_in_place_is_refused_and_a_frozen_one_is_the_remedy(kind: Any) -> None:
    with pytest.raises(ModuleError, match=r"Scale\.h.*@dataclass\(frozen=True\)"):
        Scale(kind(100))
    step = fw.jit(jitted)
    model = Scale(Options(100))
    results = []
    for value in (100, 0, 100):
        model.h = dataclasses.replace(model.h, value=value)
        results.append(int(step(model, jnp.int32(1))[0]))
    assert results == [100, 0, 100]
    assert len(step.traces) == 2


# https://github.com/jax-ml/jax/issues/13992
def test_an_object_that_is_changed_in_place_is_refused_or_the_change_counts() -> None:
    with contextlib.suppress(ModuleError):
        model = Scale(ByField(100))
        step = fw.jit(lambda model, x: x + model.h.h)
        assert int(step(model, jnp.int32(1))) == 101
        model.h.h = 0
        assert int(step(model, jnp.int32(1))) == 1


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {1, 2}, [[1], {"b": [2]}]])
def test_a_container_that_was_assigned_does_not_follow_the_original_and_cannot_be_changed(value: Any) -> None:
    original = value.copy()
    model = Scale(value)
    value.clear()
    assert model.h == original
    with pytest.raises((TypeError, AttributeError)):
        model.h.clear()
