"""`Prefetch`: reads batches ahead in a thread, and still knows which batch was handed out last."""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from framework.errors import DataError

_SECONDS_TO_WAIT_AT_EXIT = 5.0


class Source(Protocol):
    """An iterator over batches that can say its position, such as a `BatchIterator`."""

    def __next__(self) -> Any: ...

    def state(self) -> dict[str, int]:
        """Returns the position, from which another iterator of the same batches can go on."""
        ...


class Prefetch(Iterator[Any]):
    """Reads and prepares batches ahead in a background thread.

    The position it reports is that of the batches handed out, so a run that continues from it gets those
    that were read ahead and not used. Do not use `iterator` yourself any more. Once reading failed, each
    further `next` raises the same error.

    Args:
        iterator: where batches come from.
        depth: number of batches to keep ready; 0 reads each one when it is asked for, without a thread.
        prepare: called with each batch and its count, from 0 for the first that this object reads, in the
            thread; what it returns is handed out. This is the place to check a batch and to put it on a
            device.

    Raises:
        DataError: if `depth` is negative.

    Example:
        >>> import numpy as np
        >>> from framework.data import ArrayBatches
        >>> data = ArrayBatches({"x": np.arange(4)}, 2, shuffle=False, epochs=1)
        >>> ahead = Prefetch(iter(data), depth=2, prepare=lambda batch, number: batch["x"] * 10)
        >>> next(ahead).tolist(), ahead.state()["examples"]
        ([0, 10], 2)
        >>> ahead.close()
    """

    def __init__(self, iterator: Source, *, depth: int = 2, prepare: Callable[[Any, int], Any] | None = None) -> None:
        if depth < 0:
            raise DataError(
                f"the number of batches to read ahead is {depth}, but it must not be negative. Write "
                f"`depth=2`, or `depth=0` to read each batch when it is asked for."
            )
        self._state = iterator.state()
        self._read = _Reader(iterator, prepare)
        self._ended: BaseException | None = None
        self._closed = False
        self._worker = _Worker(self._read, depth) if depth else None
        if self._worker is not None:
            # The thread does not refer to this object, so that forgetting it ends the thread, too.
            weakref.finalize(self, self._worker.stop, _SECONDS_TO_WAIT_AT_EXIT)

    def __next__(self) -> Any:
        """Returns the next batch as `prepare` made it.

        Raises:
            StopIteration: at the end of the data.
            Exception: whatever reading or preparing this batch raised, with a note that gives its number.
            DataError: after `close`.
        """
        if self._ended is not None:
            raise self._ended
        outcome = None
        if not self._closed:
            outcome = self._read() if self._worker is None else self._worker.take()
        if outcome is None:
            raise DataError(
                "a batch was asked for after the prefetching was closed. Make a new one, and let its "
                "iterator continue where this one stopped: `iterator.restore(prefetch.state())`, then "
                "`Prefetch(iterator)`."
            )
        if outcome.error is not None:
            self._ended = outcome.error
            raise outcome.error
        self._state = outcome.state
        return outcome.batch

    def state(self) -> dict[str, int]:
        """Returns the position after the batch that was handed out last; `BatchIterator.restore` takes it."""
        return dict(self._state)

    def close(self) -> None:
        """Ends the thread once its current batch is read, and drops what was read ahead; may be repeated."""
        self._closed = True
        if self._worker is not None:
            self._worker.stop()


@dataclass(frozen=True)
class _Outcome:
    """A batch with the position behind it, or the reason why there is none."""

    batch: Any
    state: dict[str, int]
    error: BaseException | None = None


class _Reader:
    """Reads and prepares one batch a call, and counts them."""

    def __init__(self, iterator: Source, prepare: Callable[[Any, int], Any] | None) -> None:
        self._iterator, self._prepare, self._number = iterator, prepare, 0

    def __call__(self) -> _Outcome:
        try:
            try:
                batch = next(self._iterator)
            except StopIteration as end:
                return _Outcome(None, {}, end)
            state = self._iterator.state()
            if self._prepare is not None:
                try:
                    batch = self._prepare(batch, self._number)
                except StopIteration as error:  # would be taken for the end of the data
                    raise RuntimeError("prepare raised StopIteration") from error
        except BaseException as error:
            # A note and not another type: callers catch what their own functions raise.
            error.add_note(f"This was raised for batch {self._number}, counted from 0 since the prefetching began.")
            return _Outcome(None, {}, error)
        self._number += 1
        return _Outcome(batch, state)


class _Worker:
    """A thread that keeps up to `depth` outcomes ready, and ends at the first that is an error."""

    def __init__(self, read: Callable[[], _Outcome], depth: int) -> None:
        self._read, self._depth = read, depth
        self._ready: deque[_Outcome] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        # A daemon, since Python joins others at exit before anything could tell this one to stop.
        self._thread = threading.Thread(target=self._run, name="framework prefetch", daemon=True)
        self._thread.start()

    def take(self) -> _Outcome | None:
        """Waits for the next outcome; None if the worker was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._ready)
            if self._stopped:
                return None
            outcome = self._ready.popleft()
            self._changed.notify_all()
            return outcome

    def stop(self, timeout: float | None = None) -> None:
        """Ends the thread and waits for it, `timeout` seconds or as long as it takes."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
        # The garbage collector may run this in the thread itself.
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run(self) -> None:
        while self._may_read():
            if not self._add(self._read()):
                return

    def _may_read(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._ready) < self._depth)
            return not self._stopped

    def _add(self, outcome: _Outcome) -> bool:
        with self._changed:
            if not self._stopped:
                self._ready.append(outcome)
                self._changed.notify_all()
            return outcome.error is None
