"""Going on after a restore: compiled functions, donation, and what only training makes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.checkpoint import Checkpoints, Restored


class Layer(fw.Module):
    weight: fw.Param
    bias: fw.Param

    def __init__(self, value: float = 0.0, size: int = 3) -> None:
        self.weight = jnp.full((size, size), value)
        self.bias = jnp.full(size, value)
        self.size = size

    def __call__(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class Holder(fw.Module):
    """Holds one leaf of whatever sort, and one hyperparameter of whatever sort."""

    leaf: fw.State
    moments: dict[Any, fw.State]

    def __init__(self, leaf: Any = 0.0, option: Any = None, moments: Any = None) -> None:
        self.leaf = leaf
        self.option = option
        self.moments = moments or {}


def bits(module: Any) -> dict[str, tuple[Any, ...]]:
    """Returns shape, dtype and bytes of each leaf by path."""

    def words(leaf: Any) -> np.ndarray:
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    return {
        path: (leaf.shape, str(leaf.dtype), words(leaf).tobytes())
        for path, leaf in fw.select(module, lambda _: True).items()
    }


def round_trip(directory: Path, saved: Any, fresh: Any) -> Restored:
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(1, saved)
    return Checkpoints(directory).restore(fresh)


def test_compiled_functions_notice_a_restored_hyperparameter_and_are_found_again(tmp_path: Path) -> None:
    @fw.jit
    def step(holder: Holder) -> None:
        holder.leaf = holder.leaf + (1.0 if holder.option == "up" else -1.0)

    saved, fresh = Holder(jnp.zeros(()), "down"), Holder(jnp.zeros(()), "up")
    step(saved)
    step(fresh)
    traces = len(step.traces)
    round_trip(tmp_path, saved, fresh)
    step(fresh)
    assert float(fresh.leaf) == -2.0
    assert len(step.traces) == traces


def test_restored_leaves_can_be_donated_in_place(tmp_path: Path) -> None:
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    for name, array in (
        ("plain", jnp.ones(1000)),
        ("committed", jax.device_put(jnp.ones(1000), jax.devices()[0])),
    ):
        fresh = Holder(array)
        round_trip(tmp_path / name, Holder(jnp.arange(1000.0)), fresh)
        leaf = fresh.leaf
        address = leaf.unsafe_buffer_pointer()
        assert leaf.committed is (name == "committed") and leaf.sharding == array.sharding
        doubled = double(leaf)
        assert leaf.is_deleted() and doubled.unsafe_buffer_pointer() == address
        assert np.array_equal(doubled, 2 * np.arange(1000, dtype=np.float32))


def test_a_step_after_the_restore_adds_no_trace_and_has_the_same_bits(tmp_path: Path) -> None:
    def make() -> Any:
        layer = Layer(0.5)
        return fw.Optimizer(optax.adamw, layer, learning_rate=1e-2, weight_decay=0.1)

    @fw.jit
    def step(optimizer: Any, x: Any) -> Any:
        loss, gradients = fw.value_and_grad(lambda model: (model(x) ** 2).mean())(optimizer.model)
        optimizer.update(gradients)
        return loss

    straight, resumed = make(), make()
    batches = [jax.random.normal(jax.random.key(number), (4, 3)) for number in range(6)]
    for batch in batches[:3]:
        step(straight, batch)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, straight)
        for batch in batches[3:]:  # these overwrite and donate what was just saved
            step(straight, batch)
    traces = len(step.traces)
    Checkpoints(tmp_path).restore(resumed)
    for batch in batches[3:]:
        step(resumed, batch)
    assert len(step.traces) == traces
    assert bits(resumed) == bits(straight)


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


class Lazy(fw.Module):
    weight: fw.Param
    bias: fw.Param | None = None

    def __call__(self, x: Any) -> Any:
        if not hasattr(self, "weight"):
            self.weight, self.bias = jnp.ones((x.shape[-1], 2)), jnp.zeros(2)
        return x @ self.weight + self.bias


def test_what_was_made_in_training_comes_back(tmp_path: Path) -> None:
    saved, fresh = Streams(), Streams()
    saved.use("dropout")
    saved.use("dropout")
    round_trip(tmp_path, saved, fresh)
    assert type(fresh.streams["dropout"]) is Counter and fresh.newest == "dropout"
    assert int(fresh.streams["dropout"].count) == 2 and fresh.last.tolist() == [2.0, 2.0, 2.0]
    assert jax.tree.structure(fresh) == jax.tree.structure(saved)
    fresh.use("dropout")
    assert int(fresh.streams["dropout"].count) == 3


def test_a_layer_that_finds_its_sizes_at_the_first_call_comes_back(tmp_path: Path) -> None:
    saved, fresh = Lazy(), Lazy()
    saved(jnp.ones((1, 4)))
    round_trip(tmp_path, saved, fresh)
    assert fresh.weight.shape == (4, 2) and bits(fresh) == bits(saved)


class Network(fw.Module):
    """Has state of every sort: statistics, random streams that are made when they are first used, a shared object."""

    def __init__(self, rngs: fw.Rngs) -> None:
        self.first = fw.nn.Linear(3, 8, rngs=rngs)
        self.norm = fw.nn.BatchNorm(8)
        self.dropout = fw.nn.Dropout(0.5, rngs=rngs)
        self.last = fw.nn.Linear(8, 1, rngs=rngs)
        self.rngs = rngs

    def __call__(self, x: Any) -> Any:
        hidden = self.dropout(jax.nn.relu(self.norm(self.first(x))))
        return self.last(hidden) + 0.01 * jax.random.normal(self.rngs.noise(), (1,))


class Regression(fw.Task):
    def loss(self, model: Any, batch: Any) -> Any:
        return ((model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()


def regression() -> Any:
    model = Network(fw.Rngs(7))
    return Regression(model, fw.Optimizer(optax.adamw, model, learning_rate=optax.linear_schedule(0.1, 0.0, 9)))


@fw.jit
def train(task: Any, batch: Any) -> Any:
    return task.train_step(batch)


@pytest.mark.parametrize("split", [0, 1, 4, 8])
def test_a_run_that_was_resumed_ends_with_the_bits_of_one_that_was_not(tmp_path: Path, split: int) -> None:
    random = np.random.default_rng(0)
    batches = [{"x": random.normal(size=(16, 3)).astype("float32"), "y": np.ones(16, "float32")} for _ in range(8)]
    straight, first = regression(), regression()
    for batch in batches:
        train(straight, batch)
    for batch in batches[:split]:
        train(first, batch)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(split, first)
    traces = len(train.traces)
    resumed = regression()
    assert Checkpoints(tmp_path).restore(resumed).step == split
    assert resumed.model.dropout is resumed.optimizer.model.dropout
    for batch in batches[split:]:
        train(resumed, batch)
    assert bits(resumed) == bits(straight)
    assert jax.tree.structure(resumed) == jax.tree.structure(straight)
    assert len(train.traces) == traces
