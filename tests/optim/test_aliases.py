"""One array in two trained leaves: refused where it would be trained apart, and fine where it is not trained."""

import jax.numpy as jnp
import optax
import pytest

import framework as fw
from framework.errors import ModuleError


class Tied(fw.Module):
    def __init__(self) -> None:
        rngs = fw.Rngs(0)
        self.first, self.second = (fw.nn.Linear(3, 3, rngs=rngs) for _ in range(2))


def test_two_trained_leaves_that_hold_one_array_are_refused_with_the_ways_out() -> None:
    model = Tied()
    model.second.weight = model.first.weight
    with pytest.raises(
        ModuleError,
        match=r"first.weight and second.weight of Tied hold one and the same array, and each would be trained by itself.*"
        r"put the module that holds the array in both places.*jnp.copy\(array\)",
    ):
        fw.Optimizer(optax.sgd, model, learning_rate=0.1)


def test_a_module_in_two_places_a_copy_and_a_frozen_alias_are_fine() -> None:
    shared = Tied()
    shared.second = shared.first
    assert fw.Optimizer(optax.sgd, shared, learning_rate=0.1).trained == ("first.weight", "first.bias")
    copied = Tied()
    copied.second.weight = jnp.copy(copied.first.weight)
    fw.Optimizer(optax.sgd, copied, learning_rate=0.1)
    frozen = Tied()
    frozen.second.weight = frozen.first.weight
    fw.Optimizer(optax.sgd, frozen, learning_rate=0.1, wrt="first.*")
