"""Batches: each example once per epoch, and the same sequence from any position."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.data import Batches
from framework.errors import DataError


def numbers(indices: np.ndarray) -> dict[str, np.ndarray]:
    return {"id": indices}


def ids(batch: Mapping[str, Any]) -> list[int]:
    """The real rows of a batch."""
    mask = batch.get("mask", np.ones(len(batch["id"])))
    return batch["id"][mask > 0].tolist()


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    size = draw(st.integers(1, 40))
    remainder = draw(st.sampled_from(["drop", "pad"]))
    return Batches(
        numbers,
        size,
        draw(st.integers(1, size if remainder == "drop" else size + 5)),
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 2**64 - 1)),
        epochs=draw(st.one_of(st.none(), st.integers(1, 3))),
        remainder=remainder,
    )


def take(data: Any, count: int) -> list[dict[str, list[Any]]]:
    return [{key: array.tolist() for key, array in batch.items()} for batch in itertools.islice(data, count)]


@given(data=batches())
def test_property_each_example_once_per_epoch(data: Batches) -> None:
    iterator = iter(data)
    for _ in range(data.epochs or 3):
        seen = [example for batch in itertools.islice(iterator, data.steps_per_epoch) for example in ids(batch)]
        assert len(seen) == len(set(seen)) == data.examples_per_epoch
        if data.remainder == "pad":
            assert sorted(seen) == list(range(data.size))
        if not data.shuffle:
            assert seen == list(range(data.examples_per_epoch))
    if data.epochs is not None:
        assert list(iterator) == []


@given(data=batches(), before=st.integers(0, 30), between=st.integers(0, 30))
def test_property_restored_order_is_the_uninterrupted_one(data: Batches, before: int, between: int) -> None:
    whole = take(data, before + between + 10)
    first = iter(data)
    parts = take(first, before)
    second = iter(data)
    second.restore(json.loads(json.dumps(first.state())))
    parts += take(second, between)
    third = iter(data)
    take(third, 3)  # a restored position does not depend on where the iterator was
    third.restore(second.state())
    parts += take(third, 10)
    assert parts == whole


@given(data=batches(), count=st.integers(0, 30))
def test_property_position_is_the_number_of_real_rows_handed_out(data: Batches, count: int) -> None:
    iterator = iter(data)
    handed_out = sum(len(ids(batch)) for batch in itertools.islice(iterator, count))
    assert iterator.state()["examples"] == handed_out


def test_restoring_reads_nothing_before_the_position() -> None:
    read: list[list[int]] = []

    def gather(indices: np.ndarray) -> dict[str, np.ndarray]:
        read.append(indices.tolist())
        return numbers(indices)

    iterator = iter(Batches(gather, 100, 10, shuffle=False))
    iterator.restore({**iterator.state(), "examples": 10**15 + 50})
    assert next(iterator)["id"].tolist() == list(range(50, 60))
    assert read == [list(range(50, 60))]


def test_three_resumes_in_a_row_give_the_uninterrupted_ids() -> None:
    data = Batches(numbers, 100, 8, shuffle=True, seed=3, remainder="pad")
    uninterrupted = [example for batch in take(data, 26) for example in batch["id"]]
    seen, state = [], None
    for steps in (5, 3, 10, 8):
        iterator = iter(data)
        if state is not None:
            iterator.restore(state)
        seen += [example for batch in itertools.islice(iterator, steps) for example in batch["id"].tolist()]
        state = iterator.state()
    assert seen == uninterrupted


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first, second = take(Batches(numbers, 50, 50, shuffle=True, seed=1), 2)
    (other,) = take(Batches(numbers, 50, 50, shuffle=True, seed=2), 1)
    assert first != second
    assert first != other


def test_padding_repeats_the_first_row_and_is_masked() -> None:
    data = Batches(lambda i: {"id": i * 10}, 5, 3, shuffle=False, epochs=1, remainder="pad")
    first, last = list(data)
    assert first["id"].tolist() == [0, 10, 20]
    assert first["mask"].tolist() == [1, 1, 1]
    assert last["id"].tolist() == [30, 40, 30]
    assert last["mask"].tolist() == [1, 1, 0]
    assert last["mask"].dtype == np.float32


@pytest.mark.parametrize(("remainder", "steps"), [("drop", 3), ("pad", 4)])
def test_steps_per_epoch(remainder: Any, steps: int) -> None:
    data = Batches(numbers, 10, 3, shuffle=False, epochs=1, remainder=remainder)
    assert data.steps_per_epoch == steps == len(list(data))


def test_batches_can_be_gone_through_again() -> None:
    data = Batches(numbers, 6, 2, shuffle=True, epochs=1)
    assert take(data, 3) == take(data, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, r"`digits` has no examples \(its size is 0\).*size=len\(examples\)"),
        ({"batch_size": 0}, r"`batch_size` of `digits` is 0, but it must be at least 1.*`batch_size=32`"),
        ({"batch_size": 2.5}, r"`batch_size` of `digits` is 2.5 of type float, which is not a whole number"),
        (
            {"batch_size": 11},
            r"has 11 rows, but there are only 10 examples.*`batch_size=10`.*remainder=\"pad\"",
        ),
        ({"seed": -1}, r"`seed` of `digits` is -1, but it must be from 0 to"),
        ({"epochs": 0}, r"`epochs` of `digits` is 0, but it must be at least 1, or None"),
        ({"remainder": "keep"}, r"`remainder` of `digits` is 'keep', but it must be \"drop\" or \"pad\""),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    correct: dict[str, Any] = {"size": 10, "batch_size": 2, "shuffle": True, "name": "digits"}
    with pytest.raises(DataError, match=message) as caught:
        Batches(numbers, **(correct | arguments))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("saved", "difference"),
    [
        ({"size": 99}, "`size` was 99 and is 10 now"),
        ({"batch_size": 5}, "`batch_size` was 5 and is 2 now"),
        ({"seed": 1}, "`seed` was 1 and is 0 now"),
        ({"shuffle": 0}, "`shuffle` was 0 and is 1 now"),
        ({"pad": 1}, "`pad` was 1 and is 0 now"),
        ({"seed": 1, "size": 99}, "`size` was 99 and is 10 now, `seed` was 1 and is 0 now"),
    ],
)
def test_position_of_other_batches_is_refused(saved: dict[str, int], difference: str) -> None:
    iterator = iter(Batches(numbers, 10, 2, shuffle=True, name="digits"))
    next(iterator)
    with pytest.raises(DataError, match=f"position of `digits` belongs to other batches: {difference}"):
        iterator.restore({**iterator.state(), **saved})
    assert iterator.state()["examples"] == 2


@pytest.mark.parametrize("examples", [-2, 3, 22, 1.0, "4", None])
def test_position_where_no_batch_begins_is_refused(examples: Any) -> None:
    iterator = iter(Batches(numbers, 10, 2, shuffle=True, epochs=2))
    with pytest.raises(DataError, match=r"where no batch begins.*the data ends after 20 examples \(2 epochs\)"):
        iterator.restore({**iterator.state(), "examples": examples})


def test_something_else_than_a_position_is_refused() -> None:
    iterator = iter(Batches(numbers, 10, 2, shuffle=True))
    with pytest.raises(DataError, match=r"has the entries \['step'\] instead of \['batch_size', 'examples', "):
        iterator.restore({"step": 3})


def test_failing_gather_names_batch_and_indices_and_keeps_the_position() -> None:
    broken = [True]

    def gather(indices: np.ndarray) -> dict[str, np.ndarray]:
        if 13 in indices and broken:
            raise OSError("disk\n gone")
        return numbers(indices)

    iterator = iter(Batches(gather, 10 * 8, 8, shuffle=False, name="photos"))
    next(iterator)
    message = r"batch 1 of `photos` could not be read: OSError: disk gone.*8 examples.*indices 8, 9, 10, 11, 12\."
    with pytest.raises(DataError, match=message) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, OSError)
    broken.clear()
    assert next(iterator)["id"].tolist() == list(range(8, 16))


def test_number_of_a_failing_batch_is_counted_over_epochs_and_resumes() -> None:
    def gather(indices: np.ndarray) -> dict[str, np.ndarray]:
        raise ValueError("no")

    iterator = iter(Batches(gather, 10, 4, shuffle=False, remainder="pad"))
    iterator.restore({**iterator.state(), "examples": 24})
    with pytest.raises(DataError, match=r"batch 7 of `data`"):
        next(iterator)


def test_rows_that_are_not_a_batch_are_refused() -> None:
    iterator = iter(Batches(lambda i: {"id": i, "x": np.zeros((3, 2))}, 10, 4, shuffle=False))
    with pytest.raises(DataError, match=r'"x" in batch 0 of `data` has the shape \[3, 2\].*batch of 4 rows'):
        next(iterator)


def test_mask_of_the_users_own_is_not_overwritten() -> None:
    def gather(indices: np.ndarray) -> dict[str, np.ndarray]:
        return {"mask": indices}

    assert next(iter(Batches(gather, 4, 2, shuffle=False)))["mask"].tolist() == [0, 1]
    with pytest.raises(DataError, match=r'already has a "mask".*"attention_mask"'):
        next(iter(Batches(gather, 4, 2, shuffle=False, remainder="pad")))
