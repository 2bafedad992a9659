"""Restoring an older step into the object that was trained on since."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.checkpoint import Checkpoints
from framework.errors import CheckpointError


class Layer(fw.Module):
    weight: fw.Param
    bias: fw.Param | None

    def __init__(self, rows: int = 2, columns: int = 3, *, bias: bool = True, dtype: Any = jnp.float32) -> None:
        self.weight = jnp.ones((rows, columns), dtype)
        self.bias = jnp.ones(columns, dtype) if bias else None
        self.activation: Any = jax.nn.relu


class Other(Layer):
    pass


class Net(fw.Module):
    def __init__(self, *layers: Any, **named: Any) -> None:
        self.layers = list(layers)
        for name, layer in named.items():
            setattr(self, name, layer)


def bits(module: Any) -> dict[str, tuple[Any, ...]]:
    """Returns shape, dtype and bytes of each leaf by path."""

    def words(leaf: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    return {
        path: (leaf.shape, str(leaf.dtype), words(leaf).tobytes())
        for path, leaf in fw.select(module, lambda _: True).items()
    }


class Streams(fw.Module):
    """Makes what it needs at the first call, as random streams, caches and lazy layers do."""

    count: fw.State
    last: fw.State

    def __init__(self) -> None:
        self.streams: dict[str, Any] = {}

    def use(self, name: str) -> None:
        if name not in self.streams:
            self.streams[name] = Counter()
        self.streams[name].count = self.streams[name].count + 1
        self.last = jnp.ones(3) * self.streams[name].count
        self.newest = name


class Counter(fw.Module):
    count: fw.State

    def __init__(self) -> None:
        self.count = jnp.zeros((), jnp.int32)


def test_what_was_made_after_the_checkpoint_is_gone_after_going_back(tmp_path: Path) -> None:
    streams = Streams()
    streams.use("dropout")
    structure, saved = jax.tree.structure(streams), bits(streams)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, streams)
        streams.use("noise")
        checkpoints.save(2, streams)
        checkpoints.restore(streams, step=1)
    assert list(streams.streams) == ["dropout"]
    assert jax.tree.structure(streams) == structure and bits(streams) == saved


def test_an_object_that_was_saved_here_goes_back_whatever_became_of_it(tmp_path: Path) -> None:
    net = Net(Layer(), head=Layer(), pair=(Layer(), 3))
    structure, leaves = jax.tree.structure(net), [leaf.tolist() for leaf in jax.tree.leaves(net)]
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, net)
        net.head, net.pair, net.more = Other(), [Layer()], Layer(5, 5)
        net.layers[0] = net.head
        net.layers.append(Layer())
        checkpoints.save(2, net)
        checkpoints.restore(net, step=1)
        assert jax.tree.structure(net) == structure
        assert [leaf.tolist() for leaf in jax.tree.leaves(net)] == leaves
        checkpoints.restore(net, step=2)
    assert type(net.head) is Other and net.layers[0] is net.head and len(net.layers) == 2


def test_another_object_that_was_saved_here_is_still_another_class(tmp_path: Path) -> None:
    layer, other = Layer(), Other()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, layer)
        checkpoints.save(2, other)
        with pytest.raises(CheckpointError, match=r"the object itself is .*:Other and here .*:Layer"):
            checkpoints.restore(layer)


def test_state_that_grew_in_training_goes_back(tmp_path: Path) -> None:
    class Cache(fw.Module):
        rows: fw.State

        def __init__(self) -> None:
            self.rows = jnp.zeros((0, 2))

    cache = Cache()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, cache)
        cache.rows = jnp.ones((5, 2), jnp.bfloat16)
        checkpoints.save(2, cache)
        checkpoints.restore(cache, step=1)
        assert cache.rows.shape == (0, 2) and cache.rows.dtype == jnp.float32
        with pytest.raises(CheckpointError, match=r"rows has \(5, 2\) and here \(0, 2\)"):
            checkpoints.restore(Cache())
