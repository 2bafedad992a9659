"""`Mean`, `Sum` and `Accuracy` against NumPy and scikit-learn, over uneven batches and masks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score

import framework as fw
from framework.errors import ModuleError
from framework.trackers import Accuracy, Mean, Sum

BATCHES = st.lists(hnp.arrays(np.float32, st.integers(0, 7), elements=st.floats(-100, 100, width=32)), max_size=4)


def by_eager(tracker: Any, *args: Any) -> Any:
    tracker.update(*args)
    return tracker


def by_jit(tracker: Any, *args: Any) -> Any:
    fw.jit(lambda tracker, *args: tracker.update(*args))(tracker, *args)
    return tracker


def by_plain_jit(tracker: Any, *args: Any) -> Any:
    def run(tracker: Any, *args: Any) -> Any:
        tracker.update(*args)
        return tracker

    return jax.jit(run)(tracker, *args)


def by_gradient(tracker: Any, *args: Any) -> Any:
    def loss(x: jax.Array, tracker: Any, *args: Any) -> jax.Array:
        tracker.update(*args)
        return x**2

    assert float(fw.value_and_grad(loss)(3.0, tracker, *args)[1]) == 6.0
    return tracker


WAYS = [by_eager, by_jit, by_plain_jit, by_gradient]


@pytest.mark.parametrize("way", WAYS)
def test_uneven_batches_and_masks_are_exact_in_every_way(way: Any) -> None:
    mean, total, accuracy = Mean(), Sum(), Accuracy()
    for values, mask in [([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]), ([10.0, np.nan], [1.0, 0.0])]:
        mean = way(mean, jnp.array(values), jnp.array(mask))
        total = way(total, jnp.array(values), jnp.array(mask))
    accuracy = way(accuracy, jnp.eye(4), jnp.array([0, 1, 0, 0]), jnp.array([1.0, 1.0, 1.0, 0.0]))
    assert float(mean.compute()) == 4.0 and float(total.compute()) == 16.0
    assert float(accuracy.compute()) == pytest.approx(2 / 3)
    for tracker in (mean, total, accuracy):
        assert all(leaf.dtype == jnp.float32 and not leaf.weak_type for leaf in jax.tree.leaves(tracker))


@given(BATCHES, st.randoms(use_true_random=False))
def test_mean_and_sum_are_those_of_numpy(batches: list[Any], random: Any) -> None:
    mean, total, kept = Mean(), Sum(), []
    for batch in batches:
        mask = np.array([random.random() < 0.7 for _ in batch], bool)
        padded = np.where(mask, batch, np.nan).astype(np.float32)
        mean.update(padded, mask)
        total.update(padded, mask)
        kept += batch[mask].tolist()
    if not kept:
        assert np.isnan(mean.compute()) and total.compute() == 0
    else:
        scale = np.abs(kept).sum() + 1
        np.testing.assert_allclose(mean.compute(), np.mean(kept), atol=1e-6 * scale)
        np.testing.assert_allclose(total.compute(), np.sum(kept), atol=1e-6 * scale)


@given(
    hnp.arrays(np.float32, (6,), elements=st.floats(-9, 9, width=32)),
    hnp.arrays(np.int32, (6,), elements=st.integers(0, 9)),
)
def test_a_weighted_mean_is_that_of_numpy(values: Any, weights: Any) -> None:
    mean = Mean()
    for value, weight in zip(values, weights, strict=True):
        mean.update(value, weight)
    if weights.sum():
        np.testing.assert_allclose(mean.compute(), np.average(values.astype(float), weights=weights), atol=1e-5)
    else:
        assert np.isnan(mean.compute())


@given(st.data())
def test_accuracy_is_that_of_scikit_learn(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 20))
    # Distinct logits, since scikit-learn has no say in which of two equal ones is the largest.
    logits = np.array([data.draw(st.permutations(range(4))) for _ in range(size)], np.float32)
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), np.int32)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    cut = data.draw(st.integers(0, size))
    accuracy = Accuracy()
    for part in (slice(0, cut), slice(cut, size)):
        accuracy.update(logits[part], labels[part], mask[part])
    if mask.any():
        expected = accuracy_score(labels, logits.argmax(-1), sample_weight=mask)
        np.testing.assert_allclose(accuracy.compute(), expected, rtol=1e-6)
    else:
        assert np.isnan(accuracy.compute())


@given(BATCHES, st.integers(0, 4))
def test_merging_halves_is_seeing_all_and_reset_is_seeing_nothing(batches: list[Any], cut: int) -> None:
    for make in (Mean, Sum):
        whole, first, second = make(), make(), make()
        for number, batch in enumerate(batches):
            whole.update(batch)
            (first if number < cut else second).update(batch)
        untouched = second.clone()
        first.merge(second)
        np.testing.assert_allclose(first.compute(), whole.compute(), rtol=1e-5, atol=1e-3)
        assert fw.tree_equal(second, untouched)
        first.reset()
        assert fw.tree_equal(first, make())


def test_a_mask_of_examples_holds_for_all_their_tokens() -> None:
    accuracy, mean = Accuracy(), Mean()
    labels, mask = jnp.array([[0, 1, 2], [0, 0, 0]]), jnp.array([1.0, 0.0])
    accuracy.update(jnp.broadcast_to(jnp.eye(3), (2, 3, 3)), labels, mask)
    mean.update(jnp.array([[1.0, 2.0, 3.0], [100.0, 100.0, 100.0]]), mask)
    assert float(accuracy.compute()) == 1.0 and float(accuracy.count) == 3.0
    assert float(mean.compute()) == 2.0 and float(mean.weight) == 3.0


def test_a_declared_padding_label_counts_neither_above_nor_below() -> None:
    accuracy = Accuracy(padding_label=-1)
    accuracy.update(jnp.eye(4), jnp.array([0, -1, 0, -1]))
    assert float(accuracy.compute()) == 0.5 and float(accuracy.count) == 2.0


def test_small_floats_are_counted_and_added_in_float32() -> None:
    mean = Mean()
    mean.update(jnp.full(3000, 0.1, jnp.bfloat16))
    np.testing.assert_allclose(mean.compute(), float(jnp.bfloat16(0.1)), rtol=1e-6)
    small = Mean(jnp.bfloat16)
    for _ in range(3):
        small.update(jnp.ones(200, jnp.bfloat16))
    assert float(small.weight) == 600.0 and small.dtype == jnp.bfloat16 and small.total.dtype == jnp.bfloat16


def test_an_integer_sum_is_exact_beyond_the_integers_of_float32() -> None:
    total = Sum(jnp.int32)
    total.update(jnp.array([2**24, 1, 5]), jnp.array([True, True, False]))
    assert int(total.compute()) == 2**24 + 1 and total.compute().dtype == jnp.int32
    assert int(Sum(jnp.int32).compute()) == 0


def test_a_mean_of_integer_dtype_is_refused() -> None:
    with pytest.raises(
        ModuleError, match=r"Mean was given dtype=int32, and a mean is a fraction.*`Mean\(jnp.float32\)`"
    ):
        Mean(jnp.int32)


@pytest.mark.parametrize(
    ("values", "mask"), [(jnp.ones((2, 3)), jnp.ones(3)), (1.0, jnp.ones(3)), (jnp.ones(2), jnp.ones((2, 1)))]
)
def test_a_mask_that_does_not_fit_is_refused_with_both_shapes(values: Any, mask: Any) -> None:
    for tracker in (Mean(), Sum()):
        name = type(tracker).__name__
        with pytest.raises(
            ModuleError, match=rf"{name}.update: a mask of shape .* does not fit values of .*first axes"
        ):
            tracker.update(values, mask)
        assert fw.tree_equal(tracker, type(tracker)())


@pytest.mark.parametrize(
    ("logits", "labels", "text"),
    [
        (jnp.ones((4, 3)), jnp.zeros(5, jnp.int32), r"logits of shape \[4, 3\] and labels of shape \[5\]"),
        (jnp.ones((4, 3)), jnp.zeros((4, 3), jnp.int32), r"labels.argmax\(-1\)"),
        (jnp.ones((4, 3)), jnp.zeros(4), r"labels of type float32.*labels.astype\(jnp.int32\)"),
    ],
)
def test_labels_that_do_not_fit_the_logits_are_refused(logits: Any, labels: Any, text: str) -> None:
    with pytest.raises(ModuleError, match=text):
        Accuracy().update(logits, labels)


def test_trackers_of_different_classes_do_not_merge() -> None:
    with pytest.raises(ModuleError, match=r"Mean.merge was given a Sum, whose sums mean something else"):
        Mean().merge(Sum())


def test_equal_trackers_have_equal_structure_and_one_compilation_serves_all_batches() -> None:
    assert jax.tree.structure(Mean()) == jax.tree.structure(Mean())
    update = fw.jit(lambda tracker, values: tracker.update(values))
    mean = Mean()
    for _ in range(3):
        update(mean, jnp.ones(4))
    mean.reset()
    update(mean, jnp.ones(4))
    assert len(update.traces) == 1 and float(mean.weight) == 4.0
