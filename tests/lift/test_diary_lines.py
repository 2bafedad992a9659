"""The diary names the user's line that made a function trace anew, and settings of JAX."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp

import framework as fw


class Layer(fw.Module):
    weight: fw.Param
    scale: float = 1.0

    def __init__(self) -> None:
        self.weight = jnp.ones(2)

    def __call__(self, x: Any) -> Any:
        return x * self.weight * self.scale


class Model(fw.Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]
        self.table = {"a": Layer()}

    @fw.jit
    def __call__(self, x: Any) -> Any:
        for layer in [*self.layers, *self.table.values()]:
            x = layer(x)
        return x


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def test_an_attribute_an_item_and_a_removed_one_are_named_with_their_line() -> None:
    model = Model()
    model(jnp.ones(2))
    model.layers[1].scale = 2.0
    changed = here() - 1
    model(jnp.ones(2))
    assert str(type(model).__call__.traces[-1]).endswith(f"layers.1.scale: 1.0 -> 2.0 (test_diary_lines.py:{changed})")
    model.layers.append(Layer())
    changed = here() - 1
    model(jnp.ones(2))
    text = str(type(model).__call__.traces[-1])
    assert f"layers.2.weight: absent -> float32[2] (test_diary_lines.py:{changed})" in text
    del model.table["a"]
    changed = here() - 1
    model(jnp.ones(2))
    assert f"table.a.weight: float32[2] -> absent (test_diary_lines.py:{changed})" in str(
        type(model).__call__.traces[-1]
    )


def test_a_change_inside_of_a_compiled_call_is_named_with_its_line() -> None:
    @fw.jit
    def rescale(layer: Layer, x: Any, scale: str) -> Any:
        layer.scale = float(scale)
        return layer(x)

    layer = Layer()
    rescale(layer, jnp.ones(2), "3")
    rescale(layer, jnp.ones(2), "3")
    assert [change.path for change in rescale.traces[1].changes] == ["scale"]
    line = inspect.getsourcelines(rescale.function)[1] + 2
    assert rescale.traces[1].changes[0].line == f"test_diary_lines.py:{line}"


def test_a_setting_of_jax_is_named() -> None:
    @fw.jit
    def square(x: Any) -> Any:
        return x @ x

    square(jnp.ones((2, 2)))
    with jax.default_matmul_precision("float32"):
        square(jnp.ones((2, 2)))
    assert "jax_default_matmul_precision: None -> float32" in str(square.traces[-1])
    with jax.numpy_dtype_promotion("strict"):
        square(jnp.ones((2, 2)))
    assert "jax_numpy_dtype_promotion: standard -> strict" in str(square.traces[-1])
