"""Modules in lists, dicts and tuples: all their parameters are found, trained, saved and restored."""

import collections
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw

Three = collections.namedtuple("Three", "first second third")
Layers = Iterator[fw.nn.Linear]


def layers_of(value: Any) -> list[fw.nn.Linear]:
    """Returns the layers in a nest of containers, in its own order, without the framework."""
    if isinstance(value, fw.nn.Linear):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [layer for item in value for layer in layers_of(item)] if isinstance(value, list | tuple) else []


class Net(fw.Module):
    def __init__(self, name: str) -> None:
        rngs = fw.Rngs(0)
        FORMS[name](self, iter([fw.nn.Linear(4, 4, rngs=rngs) for _ in range(3)]))

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in layers_of(self.layers):
            x = jnp.tanh(layer(x))
        return x


def in_list(net: Any, layers: Layers) -> None:
    net.layers = list(layers)


def in_tuple(net: Any, layers: Layers) -> None:
    net.layers = tuple(layers)


def in_dict(net: Any, layers: Layers) -> None:
    net.layers = dict(zip("cab", layers, strict=True))


def in_dict_with_integer_keys(net: Any, layers: Layers) -> None:
    net.layers = dict(zip((10, 9, 0), layers, strict=True))


def in_dict_of_lists(net: Any, layers: Layers) -> None:
    net.layers = {"b": [next(layers), next(layers)], "a": {"only": [next(layers)]}}


def in_named_tuple(net: Any, layers: Layers) -> None:
    net.layers = Three(*layers)


def in_mixed_list(net: Any, layers: Layers) -> None:
    net.layers = [None, next(layers), jnp.tanh, (next(layers), "name", 3), {"f": jax.nn.relu, "l": next(layers)}]


def appended(net: Any, layers: Layers) -> None:
    net.layers = []
    for layer in layers:
        net.layers.append(layer)


def appended_below(net: Any, layers: Layers) -> None:
    net.layers = {}
    net.layers["blocks"] = []
    net.layers["blocks"].append([next(layers)])
    net.layers["blocks"][0] += [next(layers)]
    net.layers["blocks"].extend(layers)


def put_into_dict(net: Any, layers: Layers) -> None:
    net.layers = {}
    net.layers["z"] = next(layers)
    net.layers.update(y=next(layers), x=[])
    net.layers["x"].insert(0, next(layers))


FORMS: dict[str, Callable[[Any, Layers], None]] = {
    function.__name__: function
    for function in (
        *(in_list, in_tuple, in_dict, in_dict_with_integer_keys, in_dict_of_lists, in_named_tuple, in_mixed_list),
        *(appended, appended_below, put_into_dict),
    )
}


@fw.jit
def train(net: Any, optimizer: fw.Optimizer, x: jax.Array) -> None:
    optimizer.update(fw.grad(lambda net, x: (net(x) ** 2).sum())(net, x))


# https://github.com/jax-ml/bonsai/issues/47
@pytest.mark.parametrize("name", FORMS)
def test_all_parameters_are_found_and_trained(name: str) -> None:
    net, x = Net(name), jax.random.normal(jax.random.key(1), (5, 4))
    assert len(layers_of(net.layers)) == 3
    params = fw.select(net, fw.Param)
    assert len(params) == 6 and sum(leaf.size for leaf in params.values()) == 60
    assert sum(leaf.size for leaf in jax.tree.leaves(net)) == 60
    gradient = fw.grad(lambda net, x: (net(x) ** 2).sum())(net, x)
    assert gradient.keys() == params.keys()
    assert all(bool(jnp.any(leaf != 0)) for leaf in gradient.values())
    before = [np.array(leaf) for layer in layers_of(net.layers) for leaf in (layer.weight, layer.bias)]
    train(net, fw.Optimizer(optax.sgd, net, learning_rate=0.1), x)
    after = [np.array(leaf) for layer in layers_of(net.layers) for leaf in (layer.weight, layer.bias)]
    assert all((old != new).any() for old, new in zip(before, after, strict=True))


# https://github.com/p-doom/jasmine/issues/228
@pytest.mark.parametrize("name", FORMS)
def test_a_restored_object_gives_exactly_the_outputs_of_the_saved_one(name: str, tmp_path: Path) -> None:
    net, x = Net(name), jax.random.normal(jax.random.key(1), (5, 4))
    train(net, fw.Optimizer(optax.sgd, net, learning_rate=0.1), x)
    fresh = Net(name)
    assert not np.array_equal(net(x), fresh(x))
    with fw.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, net)
        checkpoints.wait()
        checkpoints.restore(fresh)
    np.testing.assert_array_equal(net(x), fresh(x))
    assert fw.tree_equal(net, fresh)


# https://github.com/google/flax/issues/5217
@pytest.mark.parametrize("name", FORMS)
def test_a_layer_that_is_appended_after_a_compiled_call_is_seen_by_the_next(name: str) -> None:
    net, x = Net(name), jax.random.normal(jax.random.key(1), (5, 4))
    call = fw.jit(lambda net, x: net(x))
    np.testing.assert_allclose(call(net, x), net(x), rtol=1e-5, atol=1e-6)
    extra = fw.nn.Linear(4, 4, rngs=fw.Rngs(7))
    if isinstance(net.layers, list):
        net.layers.append(extra)
    elif isinstance(net.layers, dict):
        net.layers["new"] = extra
    else:
        net.layers = (*net.layers, extra)
    assert sum(leaf.size for leaf in fw.select(net, fw.Param).values()) == 80
    np.testing.assert_allclose(call(net, x), net(x), rtol=1e-5, atol=1e-6)
    assert len(call.traces) == 2


@pytest.mark.parametrize("empty", [list, dict, tuple])
def test_an_empty_container_has_no_parameters_and_can_be_compiled(empty: Any) -> None:
    net = Net("in_list")
    net.layers = empty()
    assert jax.tree.leaves(net) == []
    assert fw.jit(lambda net, x: net(x))(net, jnp.ones(4)).tolist() == [1.0] * 4


class Tables(fw.Module):
    tables: dict[Any, fw.State]

    def __init__(self, tables: dict[Any, Any]) -> None:
        self.tables = tables

    def joined(self) -> jax.Array:
        return jnp.concatenate([*self.tables.values()])


# https://github.com/jax-ml/jax/issues/8419
@pytest.mark.parametrize("keys", [("b", "a"), ("a", "b"), (10, 9), (1, "a"), ((1, 0), (0, 1))], ids=str)
def test_a_dict_keeps_its_order_inside_of_every_transformation(keys: tuple[Any, Any]) -> None:
    def joined(module: Tables) -> jax.Array:
        return module.joined()

    def make() -> Tables:
        return Tables({keys[0]: jnp.array([0.0, 1.0]), keys[1]: jnp.array([2.0, 3.0])})

    def one_step(module: Tables, _: Any) -> tuple[Tables, jax.Array]:
        return module, module.joined()

    expected = [0.0, 1.0, 2.0, 3.0]
    assert make().joined().tolist() == expected
    for call in (fw.jit(joined), jax.jit(joined), fw.remat(joined), fw.jit(fw.jit(joined))):
        assert call(make()).tolist() == expected
    assert fw.scan(one_step, make(), length=1)[1][0].tolist() == expected
    assert fw.vmap(joined, in_axes=None, axis_size=1)(make())[0].tolist() == expected
    assert jax.tree.map(lambda leaf: leaf, make()).joined().tolist() == expected
    assert make().clone().joined().tolist() == expected
    _, gradient = fw.value_and_grad(lambda module: (module.joined() * jnp.arange(4.0)).sum(), wrt=fw.State)(make())
    assert [gradient[path].tolist() for path in fw.select(make())] == [[0.0, 1.0], [2.0, 3.0]]
