"""Donation: written leaves give their buffers to the new values, and nobody loses an array by it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Model(fw.Module):
    weight: fw.Param
    total: fw.State

    def __init__(self) -> None:
        self.weight, self.total = jnp.ones(1000), jnp.zeros(1000)


def step(model: Model, x: Any = 1.0) -> Any:
    model.total = model.total + model.weight * x
    return model.total.sum()


def pointer(array: Any) -> int:
    return array.unsafe_buffer_pointer()


def test_a_written_leaf_reuses_its_buffer_and_a_read_one_stays() -> None:
    model, compiled = Model(), fw.jit(step)
    weight, place = model.weight, pointer(model.total)
    for _ in range(3):
        compiled(model)
    assert model.weight is weight and pointer(model.total) == place
    np.testing.assert_array_equal(model.total, np.full(1000, 3.0))


def test_without_donation_the_old_array_stays() -> None:
    model = Model()
    old = model.total
    fw.jit(step, donate=False)(model)
    np.testing.assert_array_equal(old, np.zeros(1000))
    assert pointer(model.total) != pointer(old)


def holders(model: Model) -> dict[str, Any]:
    return {
        "a variable": model.total,
        "a list": [model.total],
        "a view of numpy": np.asarray(model.total),
        "a dict of leaves": fw.select(model),
        "a tree": jax.tree.map(lambda leaf: leaf, model),
    }


@pytest.mark.parametrize("holder", list(holders(Model())))
def test_what_the_caller_still_holds_keeps_its_values(holder: str) -> None:
    model, compiled = Model(), fw.jit(step)
    compiled(model)
    held = holders(model)[holder]
    compiled(model)
    compiled(model)
    found = held["total"] if isinstance(held, dict) else held.total if isinstance(held, Model) else held
    np.testing.assert_array_equal(found[0] if isinstance(found, list) else found, np.ones(1000))
    np.testing.assert_array_equal(model.total, np.full(1000, 3.0))


def test_one_buffer_in_two_leaves_or_two_objects_is_copied() -> None:
    model, other, compiled = Model(), Model(), fw.jit(step)
    model.weight = model.total
    compiled(model)
    np.testing.assert_array_equal(model.weight, np.zeros(1000))
    other.total = model.total
    compiled(other, 2.0)
    compiled(model, 2.0)
    np.testing.assert_array_equal(other.total, np.full(1000, 2.0))
    both = fw.jit(lambda a, b: (step(a), step(b))[0])
    other.total = model.total
    both(model, other)
    np.testing.assert_array_equal(other.total, np.ones(1000))


def test_an_array_that_was_given_up_elsewhere_is_named_when_it_is_needed() -> None:
    model = Model()
    jax.jit(lambda x: x + 1, donate_argnums=0)(model.total)
    assert model.total.is_deleted()
    with pytest.raises(
        LiftError, match=r"step failed .*Lost: Model.total. Restore the object from a checkpoint or a clone"
    ):
        fw.jit(step)(model)


def test_a_failing_trace_gives_nothing_up() -> None:
    @fw.jit
    def fail(model: Model) -> None:
        step(model)
        raise ZeroDivisionError

    model = Model()
    with pytest.raises(ZeroDivisionError):
        fail(model)
    np.testing.assert_array_equal(model.total, np.zeros(1000))
    with pytest.raises(TypeError):  # a wrong argument is found while tracing, too
        fw.jit(step)(model, jnp.ones(7))
    fw.jit(step)(model)
    np.testing.assert_array_equal(model.total, np.ones(1000))


def test_shapes_that_differ_from_the_first_call_are_right_as_well() -> None:
    @fw.jit
    def grow(model: Model, x: Any) -> None:
        model.total = x * jnp.ones(3)

    model = Model()
    model.total = jnp.zeros(3)
    for x in (jnp.ones(3), jnp.ones((2, 3)), jnp.ones((1, 1)), jnp.ones((4, 3)), jnp.ones(3)):
        grow(model, x)
        np.testing.assert_array_equal(model.total, x * np.ones(3))


def test_swapped_and_returned_leaves_are_right() -> None:
    @fw.jit
    def swap(model: Model) -> Any:
        old = model.total
        model.weight, model.total = model.total, model.weight
        return old

    model = Model()
    for turn in range(4):
        old = swap(model)
        np.testing.assert_array_equal(old, np.full(1000, float(turn % 2)))
        np.testing.assert_array_equal(model.weight, np.full(1000, float(turn % 2)))
        np.testing.assert_array_equal(model.total, np.full(1000, float((turn + 1) % 2)))
