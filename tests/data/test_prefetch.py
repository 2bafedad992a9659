"""Prefetch: the same sequence as without it, an exact position, and no thread left behind."""

import gc
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.data import ArrayBatches, Batches, Prefetch
from framework.errors import DataError

DEPTHS = range(5)
SECONDS = 10.0


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    assert ended()


def prefetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "framework prefetch"]


def ended() -> bool:
    return eventually(lambda: not prefetching())


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    return condition()


def data(epochs: int | None = None) -> ArrayBatches:
    return ArrayBatches({"id": np.arange(20)}, 3, shuffle=True, seed=5, epochs=epochs, remainder="pad")


def ids(batches: Any, count: int | None = None) -> list[list[int]]:
    return [batch["id"].tolist() for batch in itertools.islice(batches, count)]


@settings(deadline=None)  # starts threads
@given(
    depth=st.sampled_from(DEPTHS),
    counts=st.lists(st.integers(0, 9), max_size=4),
    epochs=st.sampled_from([1, 2, None]),
)
def test_property_same_sequence_over_any_number_of_resumes(depth: int, counts: list[int], epochs: int | None) -> None:
    seen: list[list[int]] = []
    state = iter(data(epochs)).state()
    for count in counts:
        source = iter(data(epochs))
        source.restore(state)
        ahead = Prefetch(source, depth=depth)
        seen += ids(ahead, count)
        state = ahead.state()
        ahead.close()
        assert ahead.state() == state
        expected = iter(data(epochs))
        ids(expected, len(seen))
        assert state == expected.state()
    assert seen == ids(data(epochs), sum(counts))


@pytest.mark.parametrize("depth", DEPTHS)
def test_end_of_the_data_ends_each_further_call(depth: int) -> None:
    ahead = Prefetch(iter(data(epochs=1)), depth=depth)
    assert ids(ahead) == ids(data(epochs=1))
    assert list(ahead) == list(ahead) == []
    assert ended()


@pytest.mark.parametrize("depth", DEPTHS)
def test_prepare_gets_each_batch_with_its_number(depth: int) -> None:
    ahead = Prefetch(iter(data(epochs=1)), depth=depth, prepare=lambda batch, number: (number, batch["id"].tolist()))
    assert list(ahead) == list(enumerate(ids(data(epochs=1))))


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_than_depth_batches_are_read_ahead(depth: int) -> None:
    numbers: list[int] = []
    ahead = Prefetch(iter(data()), depth=depth, prepare=lambda batch, number: numbers.append(number))
    for handed_out in range(3):
        assert eventually(lambda handed_out=handed_out: len(numbers) == handed_out + depth)
        time.sleep(0.02)
        assert len(numbers) == handed_out + depth
        next(ahead)
    ahead.close()


def test_depth_zero_reads_when_asked_and_in_the_same_thread() -> None:
    threads: list[threading.Thread] = []
    ahead = Prefetch(iter(data()), depth=0, prepare=lambda batch, number: threads.append(threading.current_thread()))
    assert not prefetching()
    assert threads == []
    next(ahead)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("depth", DEPTHS)
def test_error_of_prepare_comes_at_its_batch_with_its_number_and_stays(depth: int) -> None:
    def prepare(batch: dict[str, Any], number: int) -> dict[str, Any]:
        if number == 2:
            raise KeyError("label")
        return batch

    ahead = Prefetch(iter(data()), depth=depth, prepare=prepare)
    assert ids(ahead, 2) == ids(data(), 2)
    state = ahead.state()
    for _ in range(2):
        with pytest.raises(KeyError, match="label") as caught:
            next(ahead)
        assert caught.value.__notes__ == ["This was raised for batch 2, counted from 0 since the prefetching began."]
    assert ahead.state() == state
    assert state["examples"] == 6
    assert ended()


@pytest.mark.parametrize("depth", DEPTHS)
def test_error_of_the_source_is_raised_as_it_is(depth: int) -> None:
    def gather(indices: np.ndarray) -> dict[str, np.ndarray]:
        if 4 in indices:
            raise OSError("disk gone")
        return {"id": indices}

    ahead = Prefetch(iter(Batches(gather, 6, 2, shuffle=False)), depth=depth)
    assert ids(ahead, 2) == [[0, 1], [2, 3]]
    with pytest.raises(DataError, match="batch 2 of `data` could not be read: OSError: disk gone"):
        next(ahead)
    assert ended()


@pytest.mark.parametrize("depth", DEPTHS)
def test_stop_iteration_of_prepare_is_not_the_end_of_the_data(depth: int) -> None:
    def prepare(batch: dict[str, Any], number: int) -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="prepare raised StopIteration"):
        next(Prefetch(iter(data()), depth=depth, prepare=prepare))


@pytest.mark.parametrize("depth", DEPTHS)
def test_close_ends_the_thread_and_further_calls_say_so(depth: int) -> None:
    ahead = Prefetch(iter(data()), depth=depth)
    next(ahead)
    assert len(prefetching()) == (depth > 0)
    ahead.close()
    assert not prefetching()
    ahead.close()
    with pytest.raises(DataError, match=r"after the prefetching was closed.*iterator.restore\(prefetch.state\(\)\)"):
        next(ahead)


def test_close_waits_for_the_batch_that_is_being_read() -> None:
    entered, finished = threading.Event(), []

    def prepare(batch: dict[str, Any], number: int) -> None:
        entered.set()
        time.sleep(0.05)
        finished.append(number)

    ahead = Prefetch(iter(data()), prepare=prepare)
    assert entered.wait(SECONDS)
    ahead.close()
    assert finished == [0]
    assert not prefetching()


def test_close_wakes_a_call_that_waits_in_another_thread() -> None:
    leave = threading.Event()
    errors: list[BaseException] = []
    ahead = Prefetch(iter(data()), prepare=lambda batch, number: leave.wait(SECONDS))

    def ask() -> None:
        try:
            next(ahead)
        except DataError as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    closing = threading.Thread(target=ahead.close)
    closing.start()
    asking.join(SECONDS)
    leave.set()
    closing.join(SECONDS)
    assert len(errors) == 1


def test_forgotten_prefetch_ends_its_thread() -> None:
    ahead = Prefetch(iter(data()))
    next(ahead)
    del ahead
    gc.collect()
    assert ended()


def test_python_exits_while_batches_are_read() -> None:
    program = """
import numpy as np
from framework.data import ArrayBatches, Prefetch
ahead = Prefetch(iter(ArrayBatches({"id": np.arange(8)}, 2, shuffle=True)))
next(ahead)
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_negative_depth_is_refused() -> None:
    with pytest.raises(DataError, match=r"read ahead is -1.*`depth=2`"):
        Prefetch(iter(data()), depth=-1)
