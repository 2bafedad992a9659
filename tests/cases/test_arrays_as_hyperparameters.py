"""Arrays in the aux data of a pytree: they fail at the second call only, and not in every process."""

import collections
import dataclasses
import functools
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import ModuleError

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class FrozenByIdentity:
    value: Any


class Undeclared(fw.Module):
    def __init__(self, value: Any) -> None:
        self.table = value


class Declared(fw.Module):
    table: fw.State

    def __init__(self, value: Any) -> None:
        self.table = value

    @fw.jit
    def scaled(self, x: jax.Array) -> jax.Array:
        return self.table * x


def add(x: Any, y: Any) -> Any:
    return x + y


ARRAYS = {
    "numpy": lambda: np.arange(3),
    "jax": lambda: jnp.array(1.0),
    "numpy without axis": lambda: np.array(1.0),
    "numpy of objects": lambda: np.array([None, "a"], object),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [False, True]),
    "key": lambda: jax.random.key(0),
}
PLACES = {
    "itself": lambda array: array,
    "list": lambda array: [1, array],
    "tuple": lambda array: (array, "name"),
    "named tuple": lambda array: Pair(1, array),
    "dict of lists": lambda array: {"a": [array]},
    "partial": lambda array: functools.partial(add, y=array),
    "frozen dataclass": Frozen,
    "frozen dataclass compared by identity": FrozenByIdentity,
}


# https://github.com/jax-ml/jax/issues/28659
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("array", ARRAYS)
def test_an_array_that_is_not_declared_is_refused_where_it_is_assigned(array: str, place: str) -> None:
    with pytest.raises(ModuleError, match=r"Undeclared\.table.*test_arrays_as_hyperparameters\.py:\d+"):
        Undeclared(PLACES[place](ARRAYS[array]()))
    later = Undeclared(None)
    with pytest.raises(ModuleError, match=r"Undeclared\.table"):
        later.table = PLACES[place](ARRAYS[array]())
    assert later.table is None


# https://github.com/jax-ml/jax/issues/14033
def test_an_array_is_refused_inside_of_a_compiled_function_too() -> None:
    def step(module: Undeclared, x: jax.Array) -> None:
        module.table = x

    module = Undeclared(None)
    for compiled in (fw.jit(step), jax.jit(step)):
        with pytest.raises(ModuleError, match=r"Undeclared\.table"):
            compiled(module, jnp.ones(3))
    assert module.table is None


# https://github.com/jax-ml/jax/issues/24204
@pytest.mark.parametrize("make", [np.arange, jnp.arange], ids=["numpy", "jax"])
def test_a_declared_array_is_a_leaf_and_another_one_costs_no_trace(make: Any) -> None:
    lifted = fw.jit(lambda module, x: module.scaled(x))
    traces: list[None] = []

    @jax.jit
    def plain(module: Declared, x: jax.Array) -> jax.Array:
        traces.append(None)
        return module.table * x

    first, second, third = Declared(make(3)), Declared(make(3)), Declared(make(3) + 5)
    assert jax.tree.structure(first) == jax.tree.structure(second) == jax.tree.structure(third)
    for module, start in [(first, 0), (second, 0), (third, 5), (first, 0)]:
        expected = [(start + i) * 2.0 for i in range(3)]
        assert module.scaled(jnp.float32(2)).tolist() == expected
        assert lifted(module, jnp.float32(2)).tolist() == expected
        assert plain(module, jnp.float32(2)).tolist() == expected
    assert len(lifted.traces) == len(traces) == 1


PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
import framework as fw

class Undeclared(fw.Module):
    def __init__(self, value):
        self.table = value

class Declared(fw.Module):
    table: fw.State
    def __init__(self, value):
        self.table = value
        self.names = frozenset({"a", "b", "c"})
    @fw.jit
    def scaled(self, x):
        return self.table * x

for value in (np.arange(3), jnp.array(1.0)):
    try:
        Undeclared(value)
    except fw.errors.ModuleError as error:
        print(error)
for value in (np.arange(3), np.arange(3), np.arange(3) + 1):
    print(Declared(value).scaled(2).tolist(), len(Declared.scaled.traces))
"""


# https://github.com/jax-ml/jax/issues/28659
@pytest.mark.slow
def test_the_outcome_does_not_depend_on_the_hash_seed() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "19")
    ]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(set(outputs)) == 1
    lines = outputs[0].splitlines()
    assert all("Undeclared.table" in line for line in lines[:2])
    assert lines[2:] == ["[0, 2, 4] 1", "[0, 2, 4] 1", "[2, 4, 6] 1"]
