"""digits: scikit-learn's images, in three disjoint stratified parts."""

import sys
from collections import Counter

import numpy as np
import pytest
from sklearn.datasets import load_digits

from framework.data import Batches, digits
from framework.errors import DataError


def examples(batches: Batches, shape: tuple[int, ...]) -> list[tuple[bytes, int]]:
    """The pixels, 0 to 16, and the label of each example of one epoch."""
    found: list[tuple[bytes, int]] = []
    iterator = iter(batches)
    for _ in range(batches.steps_per_epoch):
        batch = next(iterator)
        assert batch["image"].shape[1:] == shape
        assert (batch["image"].dtype, batch["label"].dtype) == (np.float32, np.int32)
        for row in range(batches.batch_size):
            if "mask" not in batch or batch["mask"][row] > 0:
                found.append(((batch["image"][row] * 16).astype(np.uint8).tobytes(), int(batch["label"][row])))
    return found


@pytest.mark.parametrize(("flat", "shape"), [(False, (8, 8, 1)), (True, (64,))])
def test_parts_hold_each_image_once(flat: bool, shape: tuple[int, ...]) -> None:
    splits = digits(batch_size=1, flat=flat)
    assert splits.test is not None
    parts = [examples(part, shape) for part in (splits.train, splits.eval, splits.test)]
    images, labels = load_digits(return_X_y=True)
    everything = [(image.astype(np.uint8).tobytes(), int(label)) for image, label in zip(images, labels, strict=True)]
    assert Counter(example for part in parts for example in part) == Counter(everything)
    assert [len(part) for part in parts] == [1258, 180, 359]
    facts = splits.facts
    assert (facts["num_classes"], facts["shape"]) == (10, shape)
    assert [facts[f"{part}_examples"] for part in ("train", "eval", "test")] == [1258, 180, 359]
    for part in parts:
        for label in range(10):
            share = sum(other == label for _, other in part) / len(part)
            assert share == pytest.approx((labels == label).mean(), abs=0.006)


def test_seed_changes_the_order_of_training_only() -> None:
    first, second = digits(seed=0), digits(seed=1)
    for part in ("eval", "test"):
        for left, right in zip(getattr(first, part), getattr(second, part), strict=True):
            np.testing.assert_array_equal(left["image"], right["image"])
    assert (next(iter(first.train))["image"] != next(iter(second.train))["image"]).any()
    shape = (8, 8, 1)
    left, right = (examples(digits(batch_size=1, seed=seed).train, shape) for seed in (0, 1))
    assert sorted(left) == sorted(right)


def test_pixels_lie_between_zero_and_one() -> None:
    images = np.concatenate([batch["image"] for batch in digits().eval])
    assert (images.min(), images.max()) == (0, 1)


@pytest.mark.parametrize(
    "fractions",
    [{"test_fraction": 0.0}, {"test_fraction": 0.95}, {"eval_fraction": 0.001}, {"eval_fraction": -0.1}],
)
def test_fractions_that_leave_a_part_empty_are_refused(fractions: dict[str, float]) -> None:
    (name, value), *_ = fractions.items()
    with pytest.raises(DataError, match=f"`{name}={value}`.*less than one example of each of the 10 classes"):
        digits(**fractions)


def test_batch_larger_than_the_part_is_refused() -> None:
    with pytest.raises(DataError, match="a batch of `digits/train` has 2000 rows, but there are only 1258 examples"):
        digits(batch_size=2000)


def test_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"scikit-learn, which is not installed.*`pip install scikit-learn`"):
        digits()
