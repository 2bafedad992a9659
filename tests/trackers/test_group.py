"""`Group`: trackers by name, as one; and what a tracker of one's own must have."""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import framework as fw
from framework.errors import ModuleError
from framework.trackers import Accuracy, Group, Mean, Sum, Tracker


def make() -> Group:
    return Group({"loss": Mean(), "accuracy": Accuracy(), "tokens": Sum()})


def step(group: Group, values: jax.Array) -> None:
    group.update(loss=(values, jnp.array([1.0, 0.0])), accuracy=(jnp.eye(2), jnp.array([0, 0])))


@pytest.mark.parametrize("transform", [lambda f: f, fw.jit])
def test_each_tracker_gets_its_arguments_and_the_others_stay(transform: Any) -> None:
    group = make()
    transform(step)(group, jnp.array([2.0, jnp.nan]))
    metrics = transform(lambda group: group.compute())(group)
    assert set(metrics) == {"loss", "accuracy", "tokens"}
    assert float(metrics["loss"]) == 2.0 and float(metrics["accuracy"]) == 0.5
    assert float(metrics["tokens"]) == 0.0
    assert isinstance(group["loss"], Mean)


def test_groups_merge_by_name_and_reset_as_one() -> None:
    first, second = make(), make()
    first.update(loss=1.0)
    second.update(loss=3.0, tokens=5.0)
    first.merge(second)
    assert float(first.compute()["loss"]) == 2.0 and float(first.compute()["tokens"]) == 5.0
    first.reset()
    assert fw.tree_equal(first, make())


def test_an_unknown_name_is_refused_before_anything_is_updated() -> None:
    group = make()
    with pytest.raises(
        ModuleError, match=r"Group.update was given 'lose', and has trackers for loss, accuracy, tokens"
    ):
        group.update(loss=1.0, lose=1.0)
    assert fw.tree_equal(group, make())


@pytest.mark.parametrize(
    "other", [Group({"loss": Mean()}), Group({"loss": Sum(), "accuracy": Accuracy(), "tokens": Sum()}), Mean()]
)
def test_groups_that_differ_do_not_merge(other: Any) -> None:
    group = make()
    with pytest.raises(ModuleError, match=r"this group has {'loss': 'Mean'"):
        group.merge(other)
    assert fw.tree_equal(group, make())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda group: pickle.loads(pickle.dumps(group)), Group.clone])
def test_a_copy_is_equal_and_independent(copied: Any) -> None:
    group = make()
    group.update(loss=1.0)
    other = copied(group)
    assert fw.tree_equal(other, group)
    other.update(loss=5.0)
    assert float(group.compute()["loss"]) == 1.0


def test_a_tracker_without_its_methods_says_which_to_write() -> None:
    class Unfinished(Tracker):
        pass

    with pytest.raises(NotImplementedError, match=r"Unfinished needs a method `def update\(self, ...\)`"):
        Unfinished().update()
    with pytest.raises(NotImplementedError, match=r"Unfinished needs a method `def compute\(self\)`"):
        Unfinished().compute()
