"""`vmap` traces its function once for all elements: structure may change, and objects made inside come back stacked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Layer(fw.Module):
    weight: fw.Param
    seen: fw.State
    extra: fw.State
    name: str = "a"

    def __init__(self) -> None:
        self.weight, self.seen = jnp.arange(2.0), jnp.zeros(())


def test_hyperparameters_and_removed_and_new_attributes_of_one_object_for_all_come_out() -> None:
    layer, expected = Layer(), Layer()

    def change(layer: Layer, x: Any) -> Any:
        layer.name = "b"
        layer.extra = layer.weight * 2
        layer.child = Layer()
        layer.text = "text"
        del layer.seen
        return x * layer.extra[1]

    xs = jnp.arange(3.0)
    np.testing.assert_array_equal(fw.vmap(change, (None, 0))(layer, xs), [0.0, 2.0, 4.0])
    change(expected, 1.0)
    assert fw.tree_equal(layer, expected)


def test_new_leaves_of_stacked_objects_are_stacked() -> None:
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1, leaf + 2]), Layer())

    def change(layer: Layer) -> None:
        layer.extra = layer.weight.sum()
        layer.child = Layer()
        layer.child.seen = layer.extra

    fw.vmap(change)(stacked)
    np.testing.assert_array_equal(stacked.extra, [1.0, 3.0, 5.0])
    np.testing.assert_array_equal(stacked.child.seen, [1.0, 3.0, 5.0])
    assert stacked.child.weight.shape == (3, 2)


def test_an_object_made_inside_is_returned_stacked_in_any_place_of_the_result() -> None:
    rngs = fw.Rngs(0)

    def make(rngs: fw.Rngs, x: Any) -> Any:
        layer = fw.nn.Linear(2, 3, rngs=rngs)
        return {"layer": layer, "again": [layer], "x": x, "text": "text"}

    made = fw.jit(lambda rngs, xs: fw.vmap(make)(rngs.fork(4), xs))(rngs, jnp.arange(4.0))
    assert made["again"][0] is made["layer"] and made["layer"].weight.shape == (4, 2, 3) and made["text"] == "text"
    assert len({tuple(weight.ravel().tolist()) for weight in made["layer"].weight}) == 4
    x = jnp.ones((4, 2))
    expected = jnp.stack([x[i] @ made["layer"].weight[i] for i in range(4)])
    np.testing.assert_allclose(fw.vmap(lambda layer, x: layer(x))(made["layer"], x), expected, rtol=1e-6)


def test_nothing_among_arguments_and_results_is_nothing() -> None:
    def call(first: None, x: Any, nest: dict[str, Any], last: None = None) -> Any:
        return {"none": None, "x": x, "rest": [nest["y"], None]}

    found = fw.vmap(
        call, in_axes=(0, 0, {"y": None, "none": 0}, None), out_axes={"none": 0, "x": 0, "rest": [None, 0]}
    )(None, jnp.ones(3), {"y": jnp.ones(2), "none": None}, None)
    assert found["none"] is None and found["x"].shape == (3,) and found["rest"][0].shape == (2,)


def test_an_array_that_moves_to_another_attribute_moves() -> None:
    layer = Layer()

    def swap(layer: Layer, x: Any) -> Any:
        layer.weight, layer.seen = layer.seen, layer.weight
        return x

    fw.vmap(swap, (None, 0))(layer, jnp.ones(3))
    np.testing.assert_array_equal(layer.seen, [0.0, 1.0])
    assert layer.weight.shape == ()


def test_what_would_be_another_value_for_each_element_is_refused_by_name_and_nothing_is_changed() -> None:
    layer, before = Layer(), Layer()
    with pytest.raises(LiftError, match=r"Layer.extra was written with a value that is another one for each element"):
        fw.vmap(lambda layer, x: setattr(layer, "extra", x), (None, 0))(layer, jnp.ones(3))
    with pytest.raises(LiftError, match=r"an object that was passed was returned; return its arrays"):
        fw.vmap(lambda layer, x: layer, (None, 0))(layer, jnp.ones(3))
    assert fw.tree_equal(layer, before)
