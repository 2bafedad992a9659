"""Labels are checked as plain Python would."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.data import check_labels
from framework.errors import DataError


@given(
    rows=st.lists(st.lists(st.integers(-3, 12), min_size=2, max_size=2), max_size=5),
    num_classes=st.integers(1, 10),
)
def test_property_the_first_label_out_of_range_is_named(rows: list[list[int]], num_classes: int) -> None:
    batch = {"label": np.array(rows, np.int32).reshape(-1, 2)}
    wrong = [
        (label, row, position)
        for row, labels in enumerate(rows)
        for position, label in enumerate(labels)
        if label not in range(num_classes)
    ]
    if not wrong:
        check_labels(batch, "label", num_classes, 7)
        return
    label, row, position = wrong[0]
    with pytest.raises(DataError) as caught:
        check_labels(batch, "label", num_classes, 7)
    assert str(caught.value).startswith(
        f'"label" in batch 7 is {label} in row {row}, position [{position}], '
        f"but there are {num_classes} classes, 0 to {num_classes - 1}."
    )


def test_minus_one_is_refused_with_the_remedy_for_rows_without_label() -> None:
    with pytest.raises(DataError, match=r'"label" in batch 3 is -1 in row 1, but.*10 classes.*"mask" of 0') as caught:
        check_labels({"label": np.array([4, -1])}, "label", 10, 3)
    assert "\n" not in str(caught.value)


def test_unsigned_labels_are_compared_without_overflow() -> None:
    check_labels({"label": np.array([255], np.uint8)}, "label", 1000, 0)
    with pytest.raises(DataError, match="is 255 in row 0"):
        check_labels({"label": np.array([255], np.uint8)}, "label", 255, 0)


@pytest.mark.parametrize("labels", [np.array([1.0]), np.array([True])])
def test_labels_that_are_not_integers_are_refused(labels: np.ndarray) -> None:
    with pytest.raises(DataError, match=rf"is of type {labels.dtype}.*`labels.astype\(np.int32\)`"):
        check_labels({"label": labels}, "label", 10, 0)


def test_missing_labels_are_refused_with_what_there_is() -> None:
    with pytest.raises(DataError, match=r"batch 2 has no \"label\".*it has \['image', 'target'\]"):
        check_labels({"target": 0, "image": 0}, "label", 10, 2)
