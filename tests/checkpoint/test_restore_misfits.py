"""A checkpoint that does not fit is refused with everything that differs, and the object stays as it was."""

import dataclasses
import fractions
import logging
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.checkpoint import Checkpoints
from framework.errors import CheckpointError, LiftError


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


def save(directory: Path, module: Any) -> None:
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(7, module)


def refused(directory: Path, module: Any, **options: Any) -> str:
    """Restores, expects a refusal without any effect, and returns its text."""
    structure = jax.tree.structure(module)
    leaves = [id(leaf) for leaf in jax.tree.leaves(module)]
    with pytest.raises(CheckpointError) as caught:
        Checkpoints(directory, **options).restore(module)
    assert jax.tree.structure(module) == structure
    assert [id(leaf) for leaf in jax.tree.leaves(module)] == leaves
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


def test_missing_and_unexpected_leaves_are_listed_with_nearest_names(tmp_path: Path) -> None:
    save(tmp_path, Net(encoder=Layer(), extra=Layer(bias=False)))
    text = refused(tmp_path, Net(encoder_=Layer()))
    assert text == (
        f"the checkpoint of step 7 in {tmp_path} does not fit this Net, and nothing was changed. Missing "
        f"from the checkpoint: encoder_.weight (nearest there: encoder.weight); encoder_.bias (nearest "
        f"there: encoder.bias). In the checkpoint and not in the object: encoder.weight (nearest there: "
        f"encoder_.weight); encoder.bias (nearest there: encoder_.bias); extra.weight (nearest there: "
        f"encoder_.weight). Build the object with the arguments of the run that was saved; build the object "
        f"with the arguments of the run that was saved (one that makes arrays at its first call has to be "
        f"called once first), or restore another step: `checkpoints.restore(object, step=...)`."
    )


def test_shapes_and_dtypes_are_listed_together(tmp_path: Path) -> None:
    save(tmp_path, Net(Layer(), Layer(3, 4)))
    text = refused(tmp_path, Net(Layer(dtype=jnp.bfloat16), Layer(3, 5)))
    assert "Other shapes: layers.1.weight has (3, 4) and here (3, 5); layers.1.bias has (4,) and here (5,)." in text
    assert (
        "Other dtypes: layers.0.weight is float32 and here bfloat16; layers.0.bias is float32 and here "
        "bfloat16." in text
    )
    assert "Build the object with the sizes of the run that was saved" in text


def test_a_list_of_another_length_is_refused_both_ways(tmp_path: Path) -> None:
    save(tmp_path / "long", Net(*(Layer() for _ in range(12))))
    text = refused(tmp_path / "long", Net(*(Layer() for _ in range(10))))
    assert (
        "In the checkpoint and not in the object: layers.10.weight (nearest there: layers.1.weight); "
        "layers.10.bias" in text
    )
    save(tmp_path / "short", Net(Layer()))
    text = refused(tmp_path / "short", Net(Layer(), Layer()))
    assert "Missing from the checkpoint: layers.1.weight (nearest there: layers.0.weight); layers.1.bias" in text


@pytest.mark.parametrize("saved_bias", [True, False])
def test_a_bias_on_one_side_only_is_refused(tmp_path: Path, saved_bias: bool) -> None:
    save(tmp_path, Layer(bias=saved_bias))
    text = refused(tmp_path, Layer(bias=not saved_bias))
    assert (
        "In the checkpoint and not in the object: bias" if saved_bias else "Missing from the checkpoint: bias"
    ) in text


def test_another_class_is_refused_and_named(tmp_path: Path) -> None:
    save(tmp_path, Net(head=Layer()))
    text = refused(tmp_path, Net(head=Other()))
    assert f"Other classes: head is {__name__}:Layer and here {__name__}:Other." in text
    save(tmp_path / "root", Layer())
    assert f"the object itself is {__name__}:Layer and here {__name__}:Other" in refused(tmp_path / "root", Other())


def test_an_array_where_an_object_was_is_refused(tmp_path: Path) -> None:
    class Any_(fw.Module):
        value: fw.State

        def __init__(self, value: Any) -> None:
            self.value = value

    save(tmp_path, Any_(Layer()))
    assert f"value is {__name__}:Layer and here an array" in refused(tmp_path, Any_(jnp.ones(2)))


def test_a_list_where_a_tuple_was_is_refused(tmp_path: Path) -> None:
    class State(NamedTuple):
        count: Any

    class Chain(fw.Module):
        state: fw.State

        def __init__(self, state: Any) -> None:
            self.state = state

    save(tmp_path, Chain((jnp.ones(2), jnp.ones(2))))
    text = refused(tmp_path, Chain([jnp.ones(2), jnp.ones(2)]))
    assert "state is a tuple and here framework.module.containers:List" in text
    save(tmp_path / "named", Chain(State(jnp.ones(2))))
    text = refused(tmp_path / "named", Chain((jnp.ones(2),)))
    assert "state is a namedtuple tests." in text.replace(__name__, "tests.") and "State and here a tuple" in text


def test_other_sharing_is_refused_both_ways(tmp_path: Path) -> None:
    shared = Layer()
    save(tmp_path / "shared", Net(shared, shared))
    text = refused(tmp_path / "shared", Net(Layer(), Layer()))
    assert "Shared differently: layers.1 is the same object as layers.0 in the checkpoint" in text
    save(tmp_path / "apart", Net(Layer(), Layer()))
    shared = Layer()
    text = refused(tmp_path / "apart", Net(shared, shared))
    assert "Shared differently: layers.0 is an object of its own in the checkpoint" in text


def test_a_hyperparameter_that_cannot_be_read_back_is_refused_if_it_changed(tmp_path: Path) -> None:
    saved = Layer()
    saved.activation = lambda x: 2 * x
    save(tmp_path, saved)
    text = refused(tmp_path, Layer())
    assert "Hyperparameters that cannot be read back: activation (<function" in text
    assert "was stored as its description only" in text


@dataclasses.dataclass(frozen=True)
class Window:
    size: int


def test_hyperparameters_are_imported_only_from_allowed_modules(tmp_path: Path) -> None:
    saved = Layer()
    saved.activation = Window(3)
    save(tmp_path / "own", saved)
    fresh = Layer()
    Checkpoints(tmp_path / "own").restore(fresh)  # the module that the object's class is from is allowed
    assert fresh.activation == Window(3)
    saved.activation = fractions.Fraction
    save(tmp_path / "foreign", saved)
    text = refused(tmp_path / "foreign", Layer())
    assert "activation (fractions:Fraction is not imported" in text and 'allow=["my_package"]' in text
    Checkpoints(tmp_path / "foreign", allow=["fractions"]).restore(fresh)
    assert fresh.activation is fractions.Fraction


def test_a_new_hyperparameter_of_the_class_is_missing_from_an_old_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, Net(Layer()))
    fresh = Net(Layer())
    fresh.rate = 0.5
    assert "Missing from the checkpoint: rate" in refused(tmp_path, fresh)


def test_undeclared_state_of_an_older_class_is_refused(tmp_path: Path) -> None:
    class Meter(fw.Module):
        count: fw.State

        def __init__(self) -> None:
            self.count = jnp.zeros(())

    def changed() -> Any:
        class Meter(fw.Module):
            def __init__(self) -> None:
                self.name = None

        return Meter

    cls = changed()
    cls.__qualname__ = Meter.__qualname__
    save(tmp_path, Meter())
    assert "In the checkpoint and not in the object: count" in refused(tmp_path, cls())


def test_long_lists_are_cut(tmp_path: Path) -> None:
    save(tmp_path, Net(*(Layer() for _ in range(20))))
    assert "; and 20 more." in refused(tmp_path, Net())


def test_a_wider_dtype_than_jax_is_set_to_is_refused(tmp_path: Path) -> None:
    class Count(fw.Module):
        values: dict[str, fw.State]

        def __init__(self) -> None:
            self.values = {}

    saved = Count()
    with jax.enable_x64(True):
        saved.values["n"] = jnp.ones(2, jnp.float64)
        save(tmp_path, saved)
    assert "its leaf values.n is float64, which JAX would cut to float32 now" in refused(tmp_path, Count())


def test_restored_hyperparameters_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = Net(Layer())
    saved.layers[0].activation = jax.nn.gelu
    save(tmp_path, saved)
    with caplog.at_level(logging.INFO, logger="framework"):
        Checkpoints(tmp_path).restore(Net(Layer()))
    assert any("layers.0.activation" in record.getMessage() for record in caplog.records)


def test_restoring_inside_of_a_trace_is_refused(tmp_path: Path) -> None:
    layer = Layer()
    save(tmp_path, layer)
    with pytest.raises(LiftError, match="inside a traced function"):
        jax.jit(lambda x: Checkpoints(tmp_path).restore(layer) and x)(1.0)
    assert isinstance(layer.weight, jax.Array) and np.array_equal(layer.weight, np.ones((2, 3)))


def test_a_consumed_object_can_be_restored(tmp_path: Path) -> None:
    layer = Layer()
    save(tmp_path, layer)
    jax.jit(lambda x: x * 2, donate_argnums=0)(layer.weight)
    Checkpoints(tmp_path).restore(layer)
    assert np.array_equal(layer.weight, np.ones((2, 3)))
