"""`Batches`: examples cut into batches of one shape, in an order that continues from any position."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framework.data.order import LARGEST_SEED, epoch_order
from framework.errors import DataError

Batch = dict[str, NDArray[Any]]
Indices = NDArray[np.int64]


class Batches:
    """Cuts a set of numbered examples into batches that all have the same shape.

    Args:
        gather: maps indices, int64 of shape `[batch]`, to new arrays by name, each of shape `[batch, ...]`.
        size: number of examples.
        batch_size: number of rows of every batch.
        shuffle: whether each epoch has a random order of its own; otherwise it is `0 .. size - 1`.
        seed: seed of the order, 0 to 2**64 - 1.
        epochs: how often to go through the examples; None for endlessly.
        remainder: what becomes of the last examples of an epoch that do not fill a batch: "drop" leaves
            them out, "pad" fills up with copies of the first row. Then every batch has a float32 array
            "mask" of shape `[batch]`: 1 for a real row and 0 for padding.
        name: what error messages call this data.

    Raises:
        DataError: if there are no examples, if they do not fill one batch and the remainder is dropped, or
            if an argument is out of range.

    Example:
        >>> import numpy as np
        >>> squares = Batches(lambda i: {"x": i, "y": i**2}, 5, 2, shuffle=False, epochs=1, remainder="pad")
        >>> [batch["y"].tolist() for batch in squares], squares.steps_per_epoch
        ([[0, 1], [4, 9], [16, 16]], 3)
        >>> [batch["mask"].tolist() for batch in squares][-1]
        [1.0, 0.0]
    """

    def __init__(
        self,
        gather: Callable[[Indices], Mapping[str, NDArray[Any]]],
        size: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        epochs: int | None = None,
        remainder: Literal["drop", "pad"] = "drop",
        name: str = "data",
    ) -> None:
        self.name = name
        self.size = self._integer("size", size)
        if self.size < 1:
            raise DataError(
                f"`{name}` has no examples (its size is {self.size}), so there is nothing to make a batch "
                f"of. Check the folder or the filter that the examples come from, and pass "
                f"`size=len(examples)` of a set that is not empty."
            )
        self.batch_size = self._integer("batch_size", batch_size)
        self.seed = self._integer("seed", seed)
        self.epochs = None if epochs is None else self._integer("epochs", epochs)
        self.shuffle, self.remainder = bool(shuffle), remainder
        if self.batch_size < 1:
            raise self._out_of_range("batch_size", "at least 1", "batch_size=32")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise self._out_of_range("seed", "from 0 to 2**64 - 1", "seed=0")
        if self.epochs is not None and self.epochs < 1:
            raise self._out_of_range("epochs", "at least 1, or None for endless batches", "epochs=None")
        if remainder not in ("drop", "pad"):
            raise self._out_of_range("remainder", '"drop" or "pad"', 'remainder="pad"')
        if remainder == "drop" and self.batch_size > self.size:
            raise DataError(
                f"a batch of `{name}` has {self.batch_size} rows, but there are only {self.size} examples; "
                f"as an incomplete batch is dropped, there would never be one. Write "
                f'`batch_size={self.size}` or less, or keep incomplete batches with `remainder="pad"`.'
            )
        self._gather = gather

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in one epoch."""
        return -(-self.examples_per_epoch // self.batch_size)

    @property
    def examples_per_epoch(self) -> int:
        """Number of examples that one epoch hands out: all of them, unless the remainder is dropped."""
        return self.size if self.remainder == "pad" else self.size - self.size % self.batch_size

    def __iter__(self) -> "BatchIterator":
        """Returns a new iterator at the first batch."""
        return BatchIterator(self)

    def rows(self, indices: Indices, epoch: int) -> Mapping[str, NDArray[Any]]:
        """Returns the examples of some indices; overridden where they change with the epoch.

        Args:
            indices: int64 of shape `[batch]`.
            epoch: count of the epoch, from 0.

        Returns:
            New arrays by name, each of shape `[batch, ...]`.
        """
        return self._gather(indices)

    def _integer(self, argument: str, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise DataError(
                f"`{argument}` of `{self.name}` is {value!r} of type {type(value).__name__}, which is not a "
                f"whole number. Write it without a fraction and without quotes, as in `{argument}=1`."
            ) from None

    def _out_of_range(self, argument: str, allowed: str, remedy: str) -> DataError:
        value = getattr(self, argument)
        return DataError(
            f"`{argument}` of `{self.name}` is {value!r}, but it must be {allowed}. Write for example `{remedy}`."
        )


class BatchIterator(Iterator[Batch]):
    """Hands out the batches of a `Batches` one by one, and can say and set its position.

    Example:
        >>> import numpy as np
        >>> data = Batches(lambda i: {"x": i}, 10, 3, shuffle=True)
        >>> first = iter(data)
        >>> batch, position = next(first), first.state()
        >>> position["examples"]
        3
        >>> second = iter(data)
        >>> second.restore(position)
        >>> (next(first)["x"] == next(second)["x"]).all().item()
        True
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._consumed = 0
        self._order: tuple[int, Indices] | None = None

    def __next__(self) -> Batch:
        """Returns the next batch.

        Raises:
            StopIteration: after the last epoch.
            DataError: if the examples cannot be read or have a wrong shape; the position stays where it was.
        """
        batches = self._batches
        epoch, start = divmod(self._consumed, batches.examples_per_epoch)
        if epoch == batches.epochs:
            raise StopIteration
        stop = min(start + batches.batch_size, batches.examples_per_epoch)
        real = self._indices(epoch, start, stop)
        # Padding is gathered like any other row: the gather function sees one shape only.
        indices = np.concatenate([real, np.full(batches.batch_size - len(real), real[0])])
        batch = self._read(indices, epoch, epoch * batches.steps_per_epoch + start // batches.batch_size)
        if batches.remainder == "pad":
            batch["mask"] = (np.arange(batches.batch_size) < len(real)).astype(np.float32)
        self._consumed += len(real)
        return batch

    def state(self) -> dict[str, int]:
        """Returns the position: the number of examples handed out so far, and what it is only valid with."""
        batches = self._batches
        return {
            "examples": self._consumed,
            "size": batches.size,
            "batch_size": batches.batch_size,
            "seed": batches.seed,
            "shuffle": int(batches.shuffle),
            "pad": int(batches.remainder == "pad"),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes to a position, without going through the batches before it.

        Args:
            state: what `state()` returned, here or in another process.

        Raises:
            DataError: if the state is that of other data, or of the same data in another order.
        """
        name, own = self._batches.name, self.state()
        if set(state) != set(own):
            raise DataError(
                f"the position to continue `{name}` from has the entries {sorted(map(str, state))} instead "
                f"of {sorted(own)}, so it is not that of a batch iterator. Pass what `state()` of a batch "
                f"iterator returned."
            )
        different = [key for key in own if key != "examples" and state[key] != own[key]]
        if different:
            differences = ", ".join(f"`{key}` was {state[key]} and is {own[key]} now" for key in different)
            raise DataError(
                f"the saved position of `{name}` belongs to other batches: {differences}. A position is "
                f"valid only in the order that it was taken from; examples would be repeated or left out. "
                f"Set the value of the saved run again, or begin a new run."
            )
        self._consumed = self._valid_position(state["examples"])

    def _valid_position(self, examples: Any) -> int:
        batches = self._batches
        count = batches.examples_per_epoch
        last = None if batches.epochs is None else batches.epochs * count
        whole = isinstance(examples, int) and examples >= 0 and examples % count % batches.batch_size == 0
        if whole and (last is None or examples <= last):
            return examples
        end = "" if last is None else f", and the data ends after {last} examples ({batches.epochs} epochs)"
        raise DataError(
            f"the saved position of `{batches.name}` is {examples!r} examples, where no batch begins: each "
            f"of the batches has {batches.batch_size} examples and an epoch has {count}{end}. Restore an "
            f"older checkpoint, set `epochs` as in the saved run, or begin a new run."
        )

    def _indices(self, epoch: int, start: int, stop: int) -> Indices:
        batches = self._batches
        if not batches.shuffle:
            return np.arange(start, stop, dtype=np.int64)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(batches.seed, epoch, batches.size)
        return self._order[1][start:stop]

    def _read(self, indices: Indices, epoch: int, number: int) -> Batch:
        name, first = self._batches.name, ", ".join(map(str, indices[:5].tolist()))
        try:
            batch = dict(self._batches.rows(indices, epoch))
        except Exception as error:
            cause = " ".join(f"{type(error).__name__}: {error}".split())  # some span several lines
            raise DataError(
                f"batch {number} of `{name}` could not be read: {cause}. It was to "
                f"hold {len(indices)} examples, the first with the indices {first}. Call the gather "
                f"function with `np.array([{first}])` to see the failure alone."
            ) from error
        for key, array in batch.items():
            if np.shape(array)[:1] != indices.shape:
                raise DataError(
                    f'"{key}" in batch {number} of `{name}` has the shape {list(np.shape(array))}, but '
                    f"its first axis must be the batch of {len(indices)} rows. Return `array[indices]` from "
                    f"the gather function."
                )
        if "mask" in batch and self._batches.remainder == "pad":
            raise DataError(
                f'batch {number} of `{name}` already has a "mask", which `remainder="pad"` adds to tell '
                f"padding from real rows. Give the array of your own another name, as in "
                f'`"attention_mask"`.'
            )
        return batch
