"""Which values may be logged."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import TrainingError
from framework.monitor.values import to_float, to_floats, to_step


@given(st.floats())
def test_property_floats_pass_unchanged(value: float) -> None:
    for given_value in (value, np.float64(value), np.asarray(value)):
        assert np.array_equal(to_float("x", given_value), value, equal_nan=True)


@pytest.mark.parametrize(
    "value",
    [np.asarray(3.5, ml_dtypes.bfloat16), ml_dtypes.bfloat16(3.5), np.float16(3.5), Fraction(7, 2)],
)
def test_other_numbers(value: Any) -> None:
    assert to_float("x", value) == 3.5


def test_jax_arrays() -> None:
    jnp = pytest.importorskip("jax.numpy")
    assert to_float("x", jnp.asarray(3.5, jnp.bfloat16)) == 3.5
    assert to_float("x", jnp.asarray(True)) == 1.0
    assert to_step(jnp.asarray(3)) == 3


def test_number_too_large_for_a_float_is_infinite() -> None:
    assert (to_float("x", 10**400), to_float("x", -(10**400))) == (math.inf, -math.inf)


@pytest.mark.parametrize("value", [[1.0], np.zeros(1), np.zeros((2, 3)), [], ["a"]])
def test_non_scalar_names_tag_and_remedy(value: Any) -> None:
    with pytest.raises(TrainingError, match=r"'train/loss' has shape \(.*value.mean\(\)"):
        to_floats({"train/loss": value})


@pytest.mark.parametrize("value", [None, "3.5", b"1", 1j, object(), np.datetime64(0, "s"), np.zeros((), "V4")])
def test_other_objects_name_tag_and_type(value: Any) -> None:
    with pytest.raises(TrainingError, match=f"'loss' is .*{type(value).__name__}, which is not a real number"):
        to_float("loss", value)


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, np.float32(1)])
def test_step_must_be_a_count(step: Any) -> None:
    with pytest.raises(TrainingError, match="number of completed optimizer updates"):
        to_step(step)
