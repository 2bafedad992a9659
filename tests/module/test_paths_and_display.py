"""Names of leaves, choosing and replacing them, the summary table, differences."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import ModuleError
from framework.nn.models import MLP


class Cache(fw.StateKind): ...


class Block(fw.Module):
    weight: fw.Param
    mean: fw.State
    keys: Cache

    def __init__(self) -> None:
        self.weight, self.mean, self.keys = jnp.ones((2, 3)), jnp.zeros(3, jnp.bfloat16), jnp.zeros((), jnp.int32)


class Model(fw.Module):
    def __init__(self) -> None:
        self.blocks = [Block(), Block()]
        self.shared = self.blocks[0]
        self.table = {"a b": Block()}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (None, 9),
        (fw.Param, ["blocks.0.weight", "blocks.1.weight", "table.a b.weight"]),
        (Cache, ["blocks.0.keys", "blocks.1.keys", "table.a b.keys"]),
        (fw.State, 6),
        ("blocks.*.weight", ["blocks.0.weight", "blocks.1.weight"]),
        ("blocks.1.*", 3),
        (("*.keys", "blocks.0.mean"), 4),
        ((fw.Param, Cache), 6),
        (lambda path: path.endswith("mean"), 3),
        ("nothing", []),
    ],
)
def test_leaves_are_selected_by_kind_pattern_function_and_several(selector: Any, names: Any) -> None:
    found = fw.select(Model()) if selector is None else fw.select(Model(), selector)
    assert len(found) == names if isinstance(names, int) else list(found) == names


def test_update_puts_leaves_in_and_a_shared_one_once() -> None:
    model = Model()
    fw.update(model, {"blocks.0.weight": jnp.full((2, 3), 5.0)})
    np.testing.assert_array_equal(model.shared.weight, np.full((2, 3), 5.0))
    before = fw.select(model)
    with pytest.raises(ModuleError, match=r"blocks.0.wieght.*blocks.0.weight"):
        fw.update(model, {"blocks.1.mean": jnp.ones(3), "blocks.0.wieght": jnp.ones(3)})
    assert all(leaf is before[path] for path, leaf in fw.select(model).items())


def test_a_summary_lists_every_leaf_once_and_adds_up() -> None:
    summary = fw.summary(Model())
    assert [row.path for row in summary.rows] == list(fw.select(Model()))
    row = summary.rows[0]
    assert (row.shape, row.dtype, row.size, row.bytes, row.trained) == ((2, 3), "float32", 6, 24, True)
    assert summary.trained == 3 * 6 and summary.total == 3 * (6 + 3 + 1) and summary.bytes == 3 * (24 + 6 + 4)
    text = str(summary)
    assert "table.a b.mean    [3]     bfloat16           3      6  no" in text
    assert text.endswith("Model: 18 trained of 30 parameters, 102 bytes")
    big = fw.summary(fw.eval_shape(lambda: MLP(1000, [5000], 10, rngs=fw.Rngs(0))))
    assert big.trained == 1000 * 5000 + 5000 + 5000 * 10 + 10


def test_repr_shows_structure_values_of_hyperparameters_and_types_of_arrays() -> None:
    assert repr(fw.nn.Linear(2, 3, rngs=fw.Rngs(0))).startswith("Linear(\n")
    text = repr(Model())
    assert "blocks=[" in text and "weight: float32[2,3]," in text and "'a b'" not in text and "a b: Block(" in text


def test_differences_name_leaves_hyperparameters_classes_and_sharing() -> None:
    model, other = Model(), Model()
    assert fw.diff(model, other) == [] and fw.tree_equal(model, other)
    other.blocks[1].weight = other.blocks[1].weight + 2
    other.table["a b"].mean = jnp.zeros(3, jnp.float32)
    other.blocks[0].name = "new"
    found = {difference.path: difference.what for difference in fw.diff(model, other)}
    assert found["blocks.1.weight"] == f"changed by norm {np.sqrt(6 * 4):.6g}"
    assert found["table.a b.mean"] == "bfloat16[3] -> float32[3]"
    assert "new" in found["blocks.0.name"]
    unshared = Model()
    unshared.shared = unshared.blocks[0].clone()
    assert not fw.tree_equal(model, unshared) and fw.diff(model, unshared)
    nan = Model()
    nan.blocks[0].weight = jnp.full((2, 3), jnp.nan)
    assert fw.tree_equal(nan, nan.clone())
    zero = Model()
    zero.blocks[0].mean = -zero.blocks[0].mean
    assert not fw.tree_equal(Model(), zero)  # -0.0 has other bits
