"""ArrayBatches: rows of arrays, in whatever layout and form they come."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from framework.data import ArrayBatches
from framework.errors import DataError


@given(
    array=arrays_of.arrays(
        st.sampled_from([np.float32, np.int64, np.uint8, np.bool_, np.dtype(">f4"), np.complex64]),
        arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6),
    ),
    transposed=st.booleans(),
    data=st.data(),
)
def test_property_batches_hold_the_rows_of_the_arrays(array: np.ndarray, transposed: bool, data: st.DataObject) -> None:
    array = array.T if transposed else array
    batch_size = data.draw(st.integers(1, len(array)))
    batches = ArrayBatches({"x": array, "id": range(len(array))}, batch_size, shuffle=True, epochs=1)
    for batch in batches:
        np.testing.assert_array_equal(batch["x"], array[batch["id"]])
        assert batch["x"].dtype == array.dtype.newbyteorder("=")


def test_batches_are_new_arrays() -> None:
    x = np.zeros((4, 2))
    batch = next(iter(ArrayBatches({"x": x}, 4, shuffle=False)))
    batch["x"] += 1
    assert x.sum() == 0


def test_contiguous_arrays_are_not_copied(tmp_path: Path) -> None:
    x = np.zeros((4, 2))
    data = ArrayBatches({"x": x}, 2, shuffle=False)
    x[0] = 7
    assert next(iter(data))["x"].tolist() == [[7, 7], [0, 0]]

    np.save(tmp_path / "x.npy", np.arange(6))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert next(iter(ArrayBatches({"x": mapped}, 3, shuffle=False)))["x"].tolist() == [0, 1, 2]


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r'of `digits` differ.*"x" has 4, "y" has 5.*`array\[:4\]`') as caught:
        ArrayBatches({"x": np.zeros(4), "y": np.zeros(5)}, 2, shuffle=False, name="digits")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "`data` was given no arrays"),
        ({"x": np.zeros((0, 3))}, "`data` has no examples"),
        ({"x": np.float32(3)}, r'"x" of `data` is the single value 3.0.*`np.full\(size, 3.0\)`'),
        ({"x": [[1, 2], [3]]}, '"x" of `data` holds Python objects or rows of different lengths'),
        ({"x": np.array([{}, None])}, '"x" of `data` holds Python objects'),
    ],
)
def test_unusable_arrays_are_refused(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ArrayBatches(arrays, 2, shuffle=False)
