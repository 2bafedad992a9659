"""One array in two places and buffers that are given up: tied weights are one, copies are two, and nothing is lost."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import LiftError


class Weight(fw.Module):
    w: fw.Param

    def __init__(self) -> None:
        self.w = jnp.float32(1.0)


class Tied(fw.Module):
    """`(w * w - 4) ** 2` with the two factors in two places."""

    def __init__(self) -> None:
        self.left = Weight()
        self.right = self.left

    def __call__(self) -> jax.Array:
        return (self.left.w * self.right.w - 4) ** 2


def by_hand(steps: int) -> float:
    w = 1.0
    for _ in range(steps):
        w -= 0.01 * 4 * w * (w * w - 4)
    return w


# https://github.com/jax-ml/jax/issues/9635
@pytest.mark.parametrize("donate", [True, False])
def test_tied_weights_train_as_one_parameter(donate: bool) -> None:
    model = Tied()
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.01)
    step = fw.jit(lambda optimizer: optimizer.update(fw.grad(lambda model: model())(optimizer.model)), donate=donate)
    gradient = fw.grad(lambda model: model())(model)
    assert {path: float(value) for path, value in gradient.items()} == {"left.w": -12.0}
    for _ in range(3):
        step(optimizer)
    assert model.left is model.right
    np.testing.assert_allclose(float(model.left.w), 1.36506, atol=5e-6)
    np.testing.assert_allclose(float(model.left.w), by_hand(3), rtol=1e-6)


class TiedTask(fw.Task):
    """An embedding that is the output layer, too; a target that starts equal; and a metric that holds the model."""

    def __init__(self, target: str) -> None:
        rngs = fw.Rngs(0)
        model = fw.nn.Embedding(5, 3, rngs=rngs)
        super().__init__(model, fw.Optimizer(optax.adam, model, learning_rate=0.1))
        self.online: Any = model
        self.target = {
            "clone": lambda: model.clone(),
            "tree": lambda: jax.tree.map(lambda leaf: leaf, model),
            "leaves": lambda: jax.tree.unflatten(jax.tree.structure(model), jax.tree.leaves(model)),
        }[target]()
        self.watched = {"model": model}  # as a metric would

    def loss(self, model: Any, batch: Any) -> jax.Array:
        logits = model.attend(model(batch["x"]))
        pull = ((model.weight - jax.lax.stop_gradient(self.target.weight)) ** 2).sum()
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean() + 0.1 * pull

    def train_step(self, batch: Any) -> jax.Array:
        loss = super().train_step(batch)
        fw.update(self.target, {"weight": 0.9 * self.target.weight + 0.1 * self.online.weight})
        return loss


def leaves_of(task: fw.Task) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in fw.select(task).values()]


# https://github.com/keras-team/keras-core/pull/897
@pytest.mark.parametrize("target", ["clone", "tree", "leaves"])
def test_three_steps_with_and_without_donation_end_in_the_same_bits(target: str) -> None:
    batch = {"x": jnp.array([0, 1, 2, 3]), "y": jnp.array([1, 2, 3, 4])}
    results, losses = [], []
    for donate in (True, False):
        task = TiedTask(target)
        step = fw.jit(task.train_step, donate=donate)
        losses.append([float(step(batch)) for _ in range(3)])
        results.append(leaves_of(task))
        assert task.watched["model"] is task.model is task.optimizer.model  # pyright: ignore
        assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(task))
    assert losses[0] == losses[1]
    for donated, kept in zip(*results, strict=True):
        np.testing.assert_array_equal(donated, kept)


# https://github.com/liesel-devs/liesel/pull/272
@pytest.mark.parametrize("target", ["clone", "tree", "leaves"])
def test_a_copy_that_starts_equal_does_not_follow_the_original(target: str) -> None:
    task = TiedTask(target)
    start = np.array(task.online.weight)
    fw.jit(lambda optimizer, x: optimizer.update({"weight": x}))(task.optimizer, jnp.ones((5, 3)))
    np.testing.assert_array_equal(task.target.weight, start)
    assert (np.array(task.online.weight) != start).all()


# https://github.com/patrick-kidger/equinox/issues/1061
def test_what_the_user_kept_from_before_training_stays_valid() -> None:
    task = TiedTask("clone")
    batch = {"x": jnp.array([0, 1]), "y": jnp.array([1, 2])}
    data = fw.data.ArrayBatches({name: np.array(value) for name, value in batch.items()}, 2, shuffle=False)
    w0, evaluation_copy = task.online.weight, jax.tree.map(lambda leaf: leaf, task.online)
    start = np.array(w0)
    fw.Trainer(max_steps=3).fit(task, data)
    np.testing.assert_array_equal(w0, start)
    np.testing.assert_array_equal(evaluation_copy.weight, start)
    assert (np.array(task.online.weight) != start).any()


class Buffers(fw.Module):
    first: fw.State
    second: fw.State

    def __init__(self) -> None:
        self.first = self.second = jnp.ones(3)


# https://github.com/jax-ml/jax/issues/9635
@pytest.mark.parametrize("donate", [True, False])
def test_one_array_under_two_names_is_two_values_from_the_first_change_on_as_in_plain_python(donate: bool) -> None:
    def step(module: Buffers, other: Buffers) -> None:
        module.first = module.first + 1
        module.second = module.second * 3
        other.first = other.first - 1

    lifted, plain = (Buffers(), Buffers()), (Buffers(), Buffers())
    for one, other in (lifted, plain):
        other.first = one.first
    compiled = fw.jit(step, donate=donate)
    for _ in range(3):
        compiled(*lifted)
        step(*plain)
    assert fw.tree_equal(lifted[0], plain[0]) and fw.tree_equal(lifted[1], plain[1])
    assert lifted[0].first.tolist() == [4.0] * 3 and lifted[0].second.tolist() == [27.0] * 3
    assert lifted[1].first.tolist() == [-2.0] * 3


# https://github.com/jax-ml/jax/issues/9635
def test_an_array_that_plain_jax_consumed_is_named_by_its_attribute() -> None:
    model = Weight()
    jax.jit(lambda x: x + 1, donate_argnums=0)(model.w)
    with pytest.raises(LiftError, match=r"Weight\.w"):
        fw.jit(lambda model: model.w + 1)(model)
