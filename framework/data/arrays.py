"""`ArrayBatches`: batches of arrays that are in memory or mapped into it."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framework.data.batches import Batches, Indices
from framework.errors import DataError


class ArrayBatches(Batches):
    """Cuts arrays of the same length into batches; row i of each array belongs to example i.

    Args:
        arrays: arrays by name, each of shape `[size, ...]`. They are not copied if they are C-contiguous.
        batch_size: number of rows of every batch.
        shuffle: whether each epoch has a random order of its own.
        seed: seed of the order, 0 to 2**64 - 1.
        epochs: how often to go through the examples; None for endlessly.
        remainder: "drop" or "pad", as for `Batches`.
        name: what error messages call this data.

    Raises:
        DataError: if there is no array, if the arrays differ in length, if one has no axis or holds Python
            objects, and for the reasons that `Batches` has.

    Example:
        >>> import numpy as np
        >>> data = ArrayBatches({"x": np.eye(4), "y": np.arange(4)}, 2, shuffle=False)
        >>> batch = next(iter(data))
        >>> batch["x"].shape, batch["y"].tolist()
        ((2, 4), [0, 1])
    """

    def __init__(
        self,
        arrays: Mapping[str, ArrayLike],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        epochs: int | None = None,
        remainder: Literal["drop", "pad"] = "drop",
        name: str = "data",
    ) -> None:
        if not arrays:
            raise DataError(
                f"`{name}` was given no arrays, so it has no examples. Pass at least one array by name, as "
                f'in `ArrayBatches({{"x": x, "y": y}}, {batch_size}, shuffle=True)`.'
            )
        self._arrays = {key: _rows(key, array, name) for key, array in arrays.items()}
        lengths = {key: len(array) for key, array in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f'"{key}" has {length}' for key, length in lengths.items())
            shortest = min(lengths.values())
            raise DataError(
                f"the arrays of `{name}` differ in their number of rows: {listed}. Row i of each array must "
                f"belong to example i. Pass arrays of one length; if the surplus rows at the end are "
                f"unwanted, cut them off with `array[:{shortest}]`."
            )
        super().__init__(
            self._take,
            next(iter(lengths.values())),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            remainder=remainder,
            name=name,
        )

    def _take(self, indices: Indices) -> dict[str, NDArray[Any]]:
        return {key: array.take(indices, axis=0) for key, array in self._arrays.items()}


def _rows(key: str, values: ArrayLike, name: str) -> NDArray[Any]:
    """Returns values in the layout that `take` reads in place; of others it would copy all for each batch."""
    try:
        array = np.asarray(values)
    except ValueError:  # nested lists of different lengths
        array = np.empty((), object)
    if array.dtype == object:
        raise DataError(
            f'"{key}" of `{name}` holds Python objects or rows of different lengths, which cannot '
            f"become an array on a device. Pad the rows to one length and pass an array of numbers, "
            f"as in `np.stack(rows)`."
        )
    if array.ndim == 0:
        raise DataError(
            f'"{key}" of `{name}` is the single value {array.item()!r} without an axis of examples. Give '
            f"each example its own row, as in `np.full(size, {array.item()!r})`."
        )
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "A"])
