"""Trackers are exact over uneven batches, masks and merges; compared with NumPy and scikit-learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

import framework as fw
from framework.trackers import Accuracy, Mean, Sum

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def split(values: Any, sizes: list[int]) -> list[Any]:
    return np.split(values, np.cumsum(sizes)[:-1])


@given(SIZES, st.integers(0, 1000))
def test_mean_and_sum_over_uneven_batches_equal_numpy(sizes: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=sum(sizes)).astype(np.float32)
    mean, total = Mean(), Sum()
    for part in split(values, sizes):
        mean.update(part)
        total.update(part)
    np.testing.assert_allclose(mean.compute(), values.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(total.compute(), values.sum(), rtol=1e-4, atol=1e-5)


@given(SIZES, st.integers(0, 1000))
def test_accuracy_equals_scikit_learn_with_padding(sizes: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(sum(sizes), 4)).astype(np.float32)
    labels = generator.integers(0, 4, sum(sizes))
    accuracy = Accuracy()
    for x, y in zip(split(logits, sizes), split(labels, sizes), strict=True):
        padding = 10 - len(y)
        mask = np.r_[np.ones(len(y)), np.zeros(padding)]
        x, y = np.pad(x, ((0, padding), (0, 0))), np.pad(y, (0, padding))
        accuracy.update(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
    assert float(accuracy.compute()) == pytest.approx(accuracy_score(labels, logits.argmax(-1)), abs=1e-6)


@pytest.mark.parametrize("kind", [Mean, Sum, Accuracy])
def test_merge_of_two_halves_equals_the_whole(kind: Any) -> None:
    generator = np.random.default_rng(0)

    def batch() -> tuple[Any, ...]:
        x = jnp.asarray(generator.normal(size=(5, 3)), jnp.float32)
        return (x, jnp.asarray(generator.integers(0, 3, 5))) if kind is Accuracy else (x,)

    whole, halves = kind(), (kind(), kind())
    for number in range(4):
        arguments = batch()
        whole.update(*arguments)
        halves[number % 2].update(*arguments)
    halves[0].merge(halves[1])
    assert float(halves[0].compute()) == pytest.approx(float(whole.compute()), rel=1e-6)
    halves[0].reset()
    assert fw.tree_equal(halves[0], kind())


def test_a_masked_nan_does_not_count() -> None:
    mean = Mean()
    mean.update(jnp.array([1.0, jnp.nan]), jnp.array([1.0, 0.0]))
    assert float(mean.compute()) == 1.0


def test_an_empty_mean_is_nan_and_an_empty_sum_is_zero() -> None:
    assert np.isnan(float(Mean().compute()))
    assert np.isnan(float(Accuracy().compute()))
    assert float(Sum().compute()) == 0.0


def test_a_weight_of_a_scalar_is_the_number_of_examples_behind_it() -> None:
    mean = Mean()
    mean.update(1.0, 3)
    mean.update(5.0, 1)
    assert float(mean.compute()) == 2.0


def test_updates_inside_and_outside_of_jit_are_the_same_and_traced_once() -> None:
    eager, jitted = Mean(), Mean()
    step = fw.jit(jitted.update)
    for value in (1.0, 2.5, -3.0):
        eager.update(jnp.asarray(value))
        step(jnp.asarray(value))
    assert fw.tree_equal(eager, jitted)
    assert len(fw.jit(jitted.update).__func__.traces) == 1  # pyright: ignore[reportFunctionMemberAccess]


def test_sums_in_another_dtype() -> None:
    total = Sum(jnp.int32)
    total.update(jnp.array([1, 2]))
    assert total.compute().dtype == jnp.int32


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"logits of shape \[3, 2\] and labels of shape \[2\]"):
        Accuracy().update(jnp.ones((3, 2)), jnp.zeros(2, jnp.int32))
    with pytest.raises(ValueError, match=r"a mask of shape \[2\] does not fit values of shape \[3\]"):
        Sum().update(jnp.ones(3), jnp.ones(2))
    with pytest.raises(TypeError, match=r"Mean\.merge was given a Sum"):
        Mean().merge(Sum())  # pyright: ignore[reportArgumentType]


def test_a_tracker_of_ones_own_needs_only_update_and_compute() -> None:
    class Largest(fw.trackers.Tracker):
        value: fw.State

        def __init__(self) -> None:
            self.value = jnp.zeros(())

        def update(self, x: jax.Array) -> None:
            self.value = jnp.maximum(self.value, x.max())

        def compute(self) -> jax.Array:
            return self.value

    largest = Largest()
    fw.jit(largest.update)(jnp.array([1.0, 4.0]))
    assert float(largest.compute()) == 4.0
    with pytest.raises(NotImplementedError, match="needs a method"):
        fw.trackers.Tracker().compute()
