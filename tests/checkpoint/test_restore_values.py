"""What comes back from a checkpoint: bits, types of keys, order, sharing, hyperparameters, placement."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import framework as fw
from framework.checkpoint import Checkpoints, Restored
from framework.module.graph import walk


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


class Pair(NamedTuple):
    first: Any
    second: Any


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


DTYPES = [
    "bool",
    "int8",
    "uint32",
    "int32",
    "float16",
    "float32",
    "bfloat16",
    "complex64",
    "int4",
    "uint4",
] + [f"float8_{name}" for name in ("e4m3fn", "e5m2", "e3m4", "e8m0fnu")]


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.sampled_from([(), (1,), (5,), (2, 3), (0,), (4, 0, 2)]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_come_back_with_exact_bits(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: tuple[int, ...], seed: int
) -> None:
    kind = jnp.dtype(dtype)
    count = math.prod(shape)
    random = np.random.default_rng(seed)
    if dtype in ("bool", "int4", "uint4"):  # not every byte is a value of these
        values = random.integers(0, 2, count).astype(kind)
    else:
        values = np.frombuffer(random.bytes(count * kind.itemsize), kind)
    saved, fresh = Holder(jnp.asarray(values.reshape(shape))), Holder(jnp.zeros(shape, kind))
    expected = np.asarray(saved.leaf).tobytes()
    round_trip(tmp_path_factory.mktemp("run"), saved, fresh)
    assert np.asarray(fresh.leaf).tobytes() == expected
    assert (fresh.leaf.shape, fresh.leaf.dtype, fresh.leaf.weak_type) == (shape, kind, False)


def test_random_keys_come_back_with_their_generator(tmp_path: Path) -> None:
    for number, implementation in enumerate(("threefry2x32", "rbg", "unsafe_rbg")):
        for shape in ((), (2, 3), (0,)):
            keys = jax.random.split(jax.random.key(7, impl=implementation), shape)
            fresh = Holder(jax.random.split(jax.random.key(0, impl=implementation), shape))
            round_trip(tmp_path / f"{number}{shape}", Holder(keys), fresh)
            assert fresh.leaf.dtype == keys.dtype and fresh.leaf.shape == shape
            assert np.array_equal(jax.random.key_data(fresh.leaf), jax.random.key_data(keys))


class Stack(fw.Module):
    by_number: dict[Any, fw.State]

    def __init__(self, first: float = 0.0) -> None:
        self.layers = [Layer(first + index) for index in range(12)]
        self.by_number = {
            3: jnp.full(2, first),
            "3": jnp.full(2, first + 1),
            (1, "a"): jnp.full(2, first + 2),
        }
        self.named = {10: Layer(first), 9: Layer(first + 1)}
        self.nothing: Any = None
        self.empty: Any = ([], {}, ())


def test_lists_keep_their_order_and_dicts_their_key_types(tmp_path: Path) -> None:
    saved, fresh = Stack(1.0), Stack()
    round_trip(tmp_path, saved, fresh)
    assert [float(layer.bias[0]) for layer in fresh.layers] == [1.0 + index for index in range(12)]
    assert [type(key) for key in fresh.by_number] == [int, str, tuple]
    assert [float(fresh.by_number[key][0]) for key in (3, "3", (1, "a"))] == [1.0, 2.0, 3.0]
    assert list(fresh.named) == [10, 9]
    assert fresh.nothing is None and fresh.empty == saved.empty
    assert bits(fresh) == bits(saved)
    assert jax.tree.structure(fresh) == jax.tree.structure(saved)


def test_all_leaves_of_the_checkpoint_are_written(tmp_path: Path) -> None:
    saved, fresh = Stack(1.0), Stack()
    before = {path: id(leaf) for path, leaf in fw.select(fresh).items()}
    round_trip(tmp_path, saved, fresh)
    after = {path: id(leaf) for path, leaf in fw.select(fresh).items()}
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


class Tied(fw.Module):
    def __init__(self, value: float = 0.0) -> None:
        self.encoder = Layer(value)
        self.decoder = self.encoder
        self.blocks = [self.encoder, Layer(value)]


def test_shared_modules_stay_shared(tmp_path: Path) -> None:
    fresh = Tied()
    encoder = fresh.encoder
    round_trip(tmp_path, Tied(2.0), fresh)
    assert fresh.encoder is encoder and fresh.decoder is encoder and fresh.blocks[0] is encoder
    assert fresh.blocks[1] is not encoder
    assert float(encoder.bias[0]) == 2.0


def test_objects_and_containers_stay_the_same_objects(tmp_path: Path) -> None:
    fresh = Stack()
    kept = walk([fresh]).nodes
    round_trip(tmp_path, Stack(4.0), fresh)
    assert [id(node) for node in walk([fresh]).nodes] == [id(node) for node in kept]


@pytest.mark.parametrize(
    "option",
    [-0.0, math.inf, 7, True, "text", ("a", 1), [1, [2]], {1: "a", "1": 2}, jnp.bfloat16, jax.nn.relu, None],
)
def test_hyperparameters_changed_in_training_come_back(tmp_path: Path, option: Any) -> None:
    saved, fresh = Holder(option="old"), Holder(option="old")
    saved.option = option
    round_trip(tmp_path, saved, fresh)
    assert type(fresh.option) is type(saved.option)
    assert jax.tree.structure(fresh) == jax.tree.structure(saved)


def test_the_training_mode_comes_back(tmp_path: Path) -> None:
    for saved_mode, fresh_mode in ((False, True), (True, False)):
        saved, fresh = Layer(), Layer()
        saved.eval() if not saved_mode else None
        fresh.eval() if not fresh_mode else None
        round_trip(tmp_path / str(saved_mode), saved, fresh)
        assert fresh.training is saved_mode
        assert jax.tree.structure(fresh) == jax.tree.structure(saved)


def test_closures_that_are_the_same_stay_what_they_are(tmp_path: Path) -> None:
    def make() -> Any:
        return Holder(option=optax.adam(0.1).update, leaf=1.0)

    fresh = make()
    option = fresh.option
    round_trip(tmp_path, make(), fresh)
    assert fresh.option is option


def test_tuples_and_optax_states_keep_their_types(tmp_path: Path) -> None:
    class Foreign(fw.Module):
        state: fw.State
        mixed: fw.State
        nested: fw.State

        def __init__(self, value: float) -> None:
            parameters = {"w": jnp.full(2, value), 1: None}
            chain = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(0.1, 0.0, 9)))
            self.state = jax.tree.map(lambda leaf: leaf + value, chain.init({"w": parameters["w"]}))
            self.mixed = (jnp.full(2, value), "fixed", Layer(value), (3, jnp.zeros(())))
            self.nested = Pair(jnp.full((), value), [jnp.full(1, value), None])

    saved, fresh = Foreign(2.0), Foreign(0.0)
    layer = fresh.mixed[2]
    round_trip(tmp_path, saved, fresh)
    assert jax.tree.structure(fresh) == jax.tree.structure(saved)
    assert type(fresh.state[1][0]) is optax.ScaleByAdamState
    assert fresh.mixed[2] is layer and fresh.mixed[1] == "fixed" and fresh.mixed[3][0] == 3
    assert bits(fresh) == bits(saved)


def test_an_abstract_object_is_filled(tmp_path: Path) -> None:
    abstract = jax.eval_shape(lambda: Stack(0.0))
    round_trip(tmp_path, Stack(3.0), abstract)
    assert bits(abstract) == bits(Stack(3.0))


def test_data_and_trainer_state_come_back_with_their_types(tmp_path: Path) -> None:
    data = {"consumed": 640, 3: [1, (2, None)], "seed": 2**70, "rate": math.inf}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, Layer(), data=data, trainer={"evaluated": [1, 2]})
        restored = checkpoints.restore(Layer())
    assert restored == Restored(5, data, {"evaluated": [1, 2]})
    assert type(restored.data[3]) is list and type(restored.data[3][1]) is tuple


def test_a_module_without_leaves_can_be_saved(tmp_path: Path) -> None:
    class Empty(fw.Module):
        def __init__(self, name: str) -> None:
            self.name = name

    fresh = Empty("fresh")
    round_trip(tmp_path, Empty("saved"), fresh)
    assert fresh.name == "saved"


def test_dictionary_keys_that_look_alike_stay_apart(tmp_path: Path) -> None:
    keys: list[Any] = [1, "1", "a.b", "a/b", "", ".", "..", "ü", "#2"]
    saved = Holder(moments={key: jnp.full((), number) for number, key in enumerate(keys)})
    saved.moments["a"] = jnp.zeros(())
    fresh = Holder(moments={key: jnp.zeros((), jnp.int32) for key in keys})
    fresh.moments["a"] = jnp.ones(())
    round_trip(tmp_path, saved, fresh)
    assert [int(fresh.moments[key]) for key in keys] == list(range(len(keys)))
