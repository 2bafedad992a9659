"""What cannot be saved is refused at once, by name."""

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


def test_saving_inside_of_a_trace_is_refused(tmp_path: Path) -> None:
    layer = Layer()
    checkpoints = Checkpoints(tmp_path)

    @fw.jit
    def step(layer: Layer) -> None:
        layer.weight = layer.weight * 2
        checkpoints.save(1, layer)

    with pytest.raises(CheckpointError, match="the leaf weight is a tracer: save after the compiled function"):
        step(layer)
    assert checkpoints.latest() is None


def test_a_donated_leaf_is_named(tmp_path: Path) -> None:
    layer = Layer()
    jax.jit(lambda x: x * 2, donate_argnums=0)(layer.weight)
    with pytest.raises(CheckpointError, match="the leaf weight was donated to a compiled function"):
        Checkpoints(tmp_path).save(1, layer)


def test_an_abstract_object_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="the leaf weight is only a shape"):
        Checkpoints(tmp_path).save(1, jax.eval_shape(Layer))


@pytest.mark.parametrize("data", [{"f": lambda: 1}, {"array": np.ones(2)}, {"x": [object()]}])
def test_state_without_a_json_form_is_refused_at_once(tmp_path: Path, data: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"nothing was saved, because data= holds .* which has no JSON form"):
        Checkpoints(tmp_path).save(1, Layer(), data=data)


@pytest.mark.parametrize("step", [-1, 1.5, "3", None, True])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    with pytest.raises(CheckpointError, match="steps are whole numbers from 0 on"):
        Checkpoints(tmp_path).save(step, Layer())


@pytest.mark.parametrize("options", [{"every": 0}, {"keep": 0}, {"keep": 1.5}, {"every": True}])
def test_intervals_are_positive(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="is not a whole number above zero"):
        Checkpoints(tmp_path, **options)
