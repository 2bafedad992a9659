"""A module is an ordinary pytree, its attributes are leaves, children or hyperparameters, and its copies are equal."""

import copy
import dataclasses
import functools
import pickle
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

import framework as fw
from framework.errors import ModuleError


class Layer(fw.Module):
    weight: fw.Param
    mean: fw.State
    rate: float = 0.5

    def __init__(self, width: int = 2) -> None:
        self.weight, self.mean, self.width = jnp.arange(1.0, width + 1), jnp.zeros(width), width

    def __call__(self, x: Any) -> Any:
        return x * self.weight * self.rate


class Model(fw.Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]
        self.table = {"b": Layer(), "a": (Layer(), "text")}
        self.nothing: Any = None
        self.empty: list[Any] = []


# Plain JAX.


def test_plain_jax_takes_a_module_that_is_passed_and_returned() -> None:
    layer = Layer()

    @jax.jit
    def step(layer: Layer, x: Any) -> Any:
        layer.mean = layer.mean + x
        layer.rate = 2.0
        return layer, layer(x)

    after, y = step(layer, jnp.ones(2))
    assert type(after) is Layer and after is not layer and after.rate == 2.0 and layer.rate == 0.5
    np.testing.assert_array_equal(after.mean, np.ones(2))
    np.testing.assert_array_equal(layer.mean, np.zeros(2))
    np.testing.assert_array_equal(y, [2.0, 4.0])
    gradient = jax.grad(lambda layer: layer(jnp.ones(2)).sum())(layer)
    np.testing.assert_array_equal(gradient.weight, [0.5, 0.5])
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), layer)
    np.testing.assert_array_equal(
        jax.vmap(lambda layer, x: layer(x))(stacked, jnp.ones((2, 2))), [[0.5, 1.0], [1.0, 1.5]]
    )
    _, outputs = jax.lax.scan(lambda carry, layer: (carry, layer(carry)), jnp.ones(2), stacked)
    np.testing.assert_array_equal(outputs[1], [1.0, 1.5])


def test_optax_and_orbax_take_a_module(tmp_path: Any) -> None:
    layer = Layer()
    params = fw.select(layer, fw.Param)
    optimizer = optax.sgd(0.1)
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, params), optimizer.init(params))
    fw.update(layer, optax.apply_updates(params, updates))
    np.testing.assert_allclose(layer.weight, [0.9, 1.9])
    whole = optax.apply_updates(layer, jax.tree.map(jnp.ones_like, layer))
    np.testing.assert_allclose(whole.mean, np.ones(2))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "leaves", jax.tree.leaves(layer))
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "leaves")
    np.testing.assert_array_equal(restored[0], layer.weight)


def test_leaves_have_key_paths_and_the_order_of_assignment() -> None:
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(Model())[0]]
    layers, table = GetAttrKey("layers"), GetAttrKey("table")
    names = GetAttrKey("weight"), GetAttrKey("mean")
    places = [
        (layers, SequenceKey(0)),
        (layers, SequenceKey(1)),
        (table, DictKey("b")),
        (table, DictKey("a"), SequenceKey(0)),
    ]
    assert paths == [(*place, name) for place in places for name in names]


def test_unflatten_does_not_call_init_and_gives_back_an_equal_module() -> None:
    class Careful(Layer):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            type(self).made += 1

    careful = Careful()
    leaves, treedef = jax.tree.flatten(careful)
    again = jax.tree.unflatten(treedef, leaves)
    assert Careful.made == 1 and fw.tree_equal(careful, again) and jax.tree.structure(again) == treedef
    assert jax.tree.structure(Layer()) == jax.tree.structure(Layer()) != jax.tree.structure(Layer(3))
    opaque = jax.tree.unflatten(treedef, [object(), object()])  # JAX puts anything into leaves
    assert jax.tree.structure(opaque) == treedef


# Attributes.


def test_children_are_found_in_every_container_and_at_any_depth() -> None:
    model = Model()
    assert len(jax.tree.leaves(model)) == 8 and len(fw.select(model, fw.Param)) == 4
    model.layers.append(Layer())
    model.table["c"] = [Layer(), {"d": Layer()}, None, jnp.tanh, 5]
    assert len(fw.select(model, fw.Param)) == 7
    assert list(fw.select(model, "table.c.*weight")) == ["table.c.0.weight", "table.c.1.d.weight"]


def test_a_number_takes_the_dtype_of_the_leaf_it_replaces() -> None:
    layer = Layer()
    layer.mean = 1
    assert layer.mean.dtype == jnp.float32 and layer.mean.shape == () and not layer.mean.weak_type
    layer.mean = np.float64(2.0)
    assert isinstance(layer.mean, jax.Array) and layer.mean.dtype == jnp.float32


def test_inheritance_dataclasses_defaults_and_properties() -> None:
    class Wide(Layer):
        bias: fw.Param
        rate = 2.0

        def __init__(self) -> None:
            super().__init__(3)
            self.bias = jnp.zeros(3)

        @property
        def size(self) -> int:
            return self.width

        @functools.cached_property
        def cached(self) -> Any:
            return [self.width]

    wide = Wide()
    before = jax.tree.structure(wide)
    assert list(fw.select(wide, fw.Param)) == ["weight", "bias"] and wide.rate == 2.0 and wide.size == 3
    assert wide.cached is wide.cached and jax.tree.structure(wide) == before

    @dataclasses.dataclass
    class Data(fw.Module):
        x: fw.Param
        name: str = "name"
        items: list[int] = dataclasses.field(default_factory=lambda: [1, 2])

    data = Data(jnp.ones(2))
    assert list(fw.select(data)) == ["x"] and data.items == [1, 2] and data == data and data != Data(jnp.ones(2))
    assert len({data, Data(jnp.ones(2))}) == 2
    assert jax.tree.structure(data) == jax.tree.structure(Data(jnp.zeros(2)))


def test_an_attribute_can_be_deleted_and_one_that_was_never_set_says_so() -> None:
    layer = Layer()
    del layer.mean
    assert len(jax.tree.leaves(layer)) == 1
    with pytest.raises(
        AttributeError, match=r"'Layer' object has no attribute 'mean' yet: it is annotated in the class"
    ):
        _ = layer.mean
    with pytest.raises(AttributeError, match="Layer has no attribute 'other' to delete"):
        del layer.other


# Errors at assignment.


def assign(value: Any) -> None:
    layer = Layer()
    layer.other = value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (jnp.ones(2), r"Layer.other was given an array \(test_base.py:\d+\).*`other: fw.Param` .*`other: fw.State`"),
        (np.ones(2), r"Layer.other was given an array"),
        ([jnp.ones(2)], r"Layer.other was given an array .*`other: list\[fw.Param\]`"),
        ({"a": [jnp.ones(2)]}, r"Layer.other was given an array .*`other: dict\[str, fw.State\]`"),
        ((jnp.ones(2), 1), r"Layer.other was given an array .*`other: tuple\[fw.Param, \.\.\.\]`"),
        ({"a": Layer().train}, r"Layer.other cannot hold this value"),
        (
            object.__new__(type("Odd", (), {"__hash__": None})),
            r"Layer.other cannot hold this value \(test_base.py:\d+\)",
        ),
        (Layer().train, r"Layer.other cannot hold this value .*method"),
    ],
)
def test_a_value_that_is_nothing_is_refused_with_the_line_and_the_remedy(value: Any, text: str) -> None:
    with pytest.raises(ModuleError, match=text):
        assign(value)


def test_an_object_inside_of_itself_is_refused_however_it_gets_there() -> None:
    model = Model()
    for close in (
        lambda: setattr(model.layers[0], "up", model),
        lambda: model.layers.append(model),
        lambda: model.table.__setitem__("self", [model]),
        lambda: setattr(model, "me", (model,)),
    ):
        before = model.clone()
        with pytest.raises(ModuleError, match=r"inside of itself|that holds this .* in a module|cannot contain itself"):
            close()
        assert fw.tree_equal(model, before)


def test_classes_whose_attributes_would_be_lost_are_refused() -> None:
    class Slotted(fw.Module):
        __slots__ = ("x",)

    with pytest.raises(ModuleError, match=r"Slotted has `__slots__`, and attributes in slots are not in the tree"):
        Slotted()

    @dataclasses.dataclass(frozen=True)
    class Frozen(fw.Module):
        x: int = 1

    with pytest.raises(ModuleError, match=r"Frozen is a frozen dataclass, and modules are changed by assigning"):
        Frozen()


def test_a_function_that_is_only_equal_to_itself_is_warned_of() -> None:
    held = jnp.ones(2)
    layer = Layer()
    with pytest.warns(
        UserWarning, match=r"Layer.function is the function .*holds arrays or unhashable values in its closure"
    ):
        layer.function = lambda x: x + held
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.function = lambda x: x + 1
        layer.function = jnp.tanh


# Modes and copies.


def test_modes_hold_for_everything_inside_and_are_restored() -> None:
    model = Model()
    inside = [model, *model.layers, model.table["b"], model.table["a"][0]]
    structure = jax.tree.structure(model)
    model.layers[1].eval()
    with model.eval():
        assert not any(one.training for one in inside)
        with model.train():
            assert all(one.training for one in inside)
        assert not any(one.training for one in inside)
    assert [one.training for one in inside] == [True, True, False, True, True]
    model.train()
    assert jax.tree.structure(model) == structure


@pytest.mark.parametrize(
    "copied",
    [
        fw.Module.clone,
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda m: jax.tree.map(jnp.copy, m),
    ],
)
def test_copies_are_equal_and_independent(copied: Any) -> None:
    model = globals()["Model"]()
    again = copied(model)
    assert again is not model and fw.tree_equal(model, again)
    again.layers[0].weight = again.layers[0].weight + 1
    again.layers.append(Layer())
    np.testing.assert_array_equal(model.layers[0].weight, [1.0, 2.0])
    assert len(model.layers) == 2


@pytest.mark.parametrize("copied", [fw.Module.clone, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_what_is_shared_stays_shared_in_a_copy(copied: Any) -> None:
    model = Model()
    model.layers[1] = model.layers[0]
    again = copied(model)
    assert again.layers[0] is again.layers[1] and again.layers[0] is not model.layers[0]
    assert len(fw.select(again)) == len(fw.select(model)) == 6
    jax.jit(lambda x: x, donate_argnums=0)(again.layers[0].weight)  # the buffers are its own
    np.testing.assert_array_equal(model.layers[0].weight, [1.0, 2.0])
