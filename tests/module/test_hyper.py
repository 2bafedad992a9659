"""Hyperparameters: frozen when they are assigned, compared by type and content, refused with a remedy."""

import copy
import dataclasses
import enum
import functools
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.module.hyper import FrozenDict, FrozenList, freeze, key


class Holder(fw.Module):
    def method(self) -> None: ...


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float


DIFFERENT = (
    (1, 1.0, True, 0, 0.0, -0.0, False, "1", b"1", None, ..., (1,), (1.0,), [1], {"a": 1}, {"a": True}, Colour.RED, 1j)
    + (complex(0.0, -0.0), complex(0.0, 0.0), float("nan"), float("inf"), jnp.float32, jnp.float16, float, Pair(1, 2))
    + ((1, 2), [1, 2], Settings(1), Settings(1.0), frozenset({1}), {"a": 1, "b": 2}, {"b": 2, "a": 1})
    + (functools.partial(jnp.sum, axis=0), functools.partial(jnp.sum, axis=1), jnp.sum, jax.nn.relu)
)


def test_values_that_are_not_the_same_have_different_keys() -> None:
    keys = [key(freeze(value)) for value in DIFFERENT]
    assert len(set(keys)) == len(DIFFERENT)


@pytest.mark.parametrize("value", DIFFERENT, ids=range(len(DIFFERENT)))
def test_a_value_equals_itself_after_a_copy_and_is_stored_as_itself(value: Any) -> None:
    holder = Holder()
    holder.value = value
    again = copy.deepcopy(holder)
    assert jax.tree.structure(holder) == jax.tree.structure(again)
    assert key(again.value) == key(freeze(value))
    restored = pickle.loads(pickle.dumps(holder))
    assert fw.tree_equal(restored, holder)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (jnp.bfloat16, np.dtype("bfloat16")),
        (np.float16, np.dtype("float16")),
        ({1, 2}, frozenset({1, 2})),
        ([1, [2, {"a": 3}]], [1, [2, {"a": 3}]]),
        (Pair(np.int8(1), [2]), Pair(1, [2])),
    ],
)
def test_a_value_is_stored_in_its_canonical_form(value: Any, stored: Any) -> None:
    holder = Holder()
    holder.value = value
    assert holder.value == stored
    assert type(holder.value) in (type(stored), FrozenList, FrozenDict)


def test_a_module_class_with_a_dtype_stays_a_class() -> None:
    class Layer(fw.Module):
        dtype = np.dtype("float32")

    holder = Holder()
    holder.layer = Layer
    assert holder.layer is Layer


@pytest.mark.parametrize("change", ["append", "extend", "__setitem__", "pop", "sort", "clear"])
def test_a_frozen_list_is_not_changed_in_place_and_says_what_to_write(change: str) -> None:
    holder = Holder()
    holder.sizes = [1, 2]
    with pytest.raises(TypeError, match=r"never changed in place.*module\.sizes = \["):
        getattr(holder.sizes, change)(0, 0)
    assert holder.sizes == [1, 2]
    assert holder.sizes + [3] == [1, 2, 3] and [0] + holder.sizes == [0, 1, 2]
    assert holder.sizes.copy() == [1, 2] and isinstance(holder.sizes.copy(), list)


@pytest.mark.parametrize("change", ["update", "__setitem__", "__delitem__", "pop", "setdefault", "clear"])
def test_a_frozen_dict_is_not_changed_in_place_and_says_what_to_write(change: str) -> None:
    holder = Holder()
    holder.options = {"b": 1, "a": 2}
    with pytest.raises(TypeError, match=r"never changed in place.*module\.options = \{"):
        getattr(holder.options, change)("b", 0)
    assert holder.options == {"b": 1, "a": 2} and list(holder.options) == ["b", "a"]
    assert {**holder.options} == holder.options | {} == {} | holder.options == holder.options.copy()


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class Mutable:
    rate: float


@dataclasses.dataclass(frozen=True, eq=False)
class HoldsArray:
    array: Any


class NeverEqual:
    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


class RaisesOnEqual(NeverEqual):
    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = NeverEqual.__hash__


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Unhashable(), "Unhashable has no hash.*give it a hash"),
        (Mutable(1.0), r"Mutable has no hash.*dataclass\(frozen=True\)"),
        (HoldsArray(np.arange(3)), "HoldsArray has no hash"),
        (NeverEqual(), "not equal to itself"),
        (RaisesOnEqual(), "comparing RaisesOnEqual with itself fails"),
        (Holder().method, "a method of a Holder.*Store the module itself"),
        (functools.partial(jnp.sum, np.arange(3)), "array cannot be a hyperparameter"),
        ([1, Unhashable()], "Unhashable has no hash"),
    ],
)
def test_what_cannot_be_a_hyperparameter_is_refused_when_it_is_assigned(value: Any, reason: str) -> None:
    holder = Holder()
    with pytest.raises(fw.errors.ModuleError, match=rf"Holder\.value .*test_hyper\.py:\d+.*{reason}"):
        holder.value = value
    assert "value" not in vars(holder)


def test_functions_compare_by_code_and_closure() -> None:
    def make(n: int) -> Any:
        return lambda x: x * n

    holders = [Holder() for _ in range(3)]
    for holder, n in zip(holders, (2, 2, 3), strict=True):
        holder.act = make(n)
    structures = [jax.tree.structure(holder) for holder in holders]
    assert structures[0] == structures[1] != structures[2]


def test_a_function_that_is_only_equal_to_itself_is_one_warning_that_names_the_field() -> None:
    array = jnp.ones(2)
    with pytest.warns(UserWarning, match=r"Holder\.act is the function .*<lambda>.*compiles anew"):
        Holder().act = lambda x: x + array


def test_keys_do_not_depend_on_the_process() -> None:
    program = (
        "import jax, jax.numpy as jnp, framework as fw\n"
        "class M(fw.Module):\n"
        "    w: fw.Param\n"
        "    def __init__(self):\n"
        "        self.w, self.n, self.s, self.d = jnp.ones(2), 3, ['a', 1.5], {'z': 1, 'a': (2, jnp.float16)}\n"
        "        self.names = {'x', 'y', 'z'}; self.children = [M.Child(), {'b': M.Child()}]\n"
        "    class Child(fw.Module):\n"
        "        v: fw.State\n"
        "        def __init__(self): self.v = jnp.zeros(())\n"
        "m = M()\n"
        "paths, structure = jax.tree_util.tree_flatten_with_path(m)\n"
        "print([jax.tree_util.keystr(path) for path, _ in paths], sorted(fw.select(m)))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**__import__("os").environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert outputs == {"['.w', '.children[0].v', \".children[1]['b'].v\"] ['children.0.v', 'children.1.b.v', 'w']\n"}
