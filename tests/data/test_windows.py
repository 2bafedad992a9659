"""Windows of a sequence: what they hold, how they cover it, and how they move."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.data import WindowBatches
from framework.errors import DataError


@st.composite
def sequences(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    length = draw(st.integers(1, 8))
    return np.arange(draw(st.integers(length + 1, 100)), dtype=np.uint8), length


@given(sequence=sequences(), seed=st.integers(0, 2**64 - 1))
def test_property_shuffled_windows_are_pieces_of_the_sequence_that_predict_no_token_twice(
    sequence: tuple[np.ndarray, int], seed: int
) -> None:
    tokens, length = sequence
    data = WindowBatches(tokens, length, 3, shuffle=True, seed=seed, remainder="pad")
    iterator = iter(data)
    for _ in range(3):
        targets: list[int] = []
        for batch in itertools.islice(iterator, data.steps_per_epoch):
            assert batch["tokens"].shape == batch["targets"].shape == (3, length)
            assert batch["tokens"].dtype == batch["targets"].dtype == np.int32
            first = batch["tokens"][:, :1]
            np.testing.assert_array_equal(batch["tokens"], first + np.arange(length))
            np.testing.assert_array_equal(batch["targets"], first + np.arange(1, length + 1))
            targets += batch["targets"][batch["mask"] > 0].flatten().tolist()
        assert len(targets) == len(set(targets)) == data.size * length
        assert max(targets) < len(tokens)
        # At most what one window of offset needs is missing.
        assert len(targets) >= len(tokens) - 1 - 2 * length


@given(sequence=sequences())
def test_property_windows_in_order_predict_the_sequence_up_to_its_last_incomplete_window(
    sequence: tuple[np.ndarray, int],
) -> None:
    tokens, length = sequence
    data = WindowBatches(tokens, length, 1, shuffle=False, epochs=1)
    targets = np.concatenate([batch["targets"][0] for batch in data])
    assert targets.tolist() == list(range(1, (len(tokens) - 1) // length * length + 1))


@given(split=st.integers(0, 40))
def test_property_restored_windows_are_the_uninterrupted_ones(split: int) -> None:
    data = WindowBatches(np.arange(100), 7, 4, shuffle=True, seed=9)
    whole = [batch["tokens"].tolist() for batch in itertools.islice(data, split + 10)]
    iterator, resumed = iter(data), iter(data)
    for _ in range(split):
        next(iterator)
    resumed.restore(iterator.state())
    assert [batch["tokens"].tolist() for batch in itertools.islice(resumed, 10)] == whole[split:]


def test_shuffled_windows_begin_at_every_offset() -> None:
    data = WindowBatches(np.arange(100), 5, data_size := 19, shuffle=True)
    assert data.size == data_size
    starts = {int(batch["tokens"].min()) for batch in itertools.islice(data, 100)}
    assert starts == set(range(5))


@pytest.mark.parametrize(
    ("size", "length", "message"),
    [
        (10, 10, r"`text` has 10 tokens, too few for one window of 10 tokens.*`length=9`"),
        (0, 3, r"`text` has 0 tokens"),
        (10, 0, r"`length` of `text` is 0, but a window needs a token"),
    ],
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_sequence_without_a_window_is_refused(size: int, length: int, message: str, shuffle: bool) -> None:
    with pytest.raises(DataError, match=message):
        WindowBatches(np.arange(size), length, 1, shuffle=shuffle, name="text")


@pytest.mark.parametrize("tokens", [np.zeros((4, 4), np.int32), np.zeros(16)])
def test_tokens_that_are_no_sequence_of_integers_are_refused(tokens: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"tokens of `data` are an array of shape .* one axis of integers"):
        WindowBatches(tokens, 2, 1, shuffle=False)


def test_length_that_is_not_a_whole_number_is_refused() -> None:
    with pytest.raises(DataError, match=r"`length` of `data` is 2.5 of type float"):
        WindowBatches(np.arange(10), 2.5, 1, shuffle=False)  # type: ignore[arg-type]
