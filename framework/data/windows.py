"""`WindowBatches`: batches of equally long pieces of one long sequence of tokens."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framework.data.batches import Batches, Indices
from framework.data.order import epoch_offset
from framework.errors import DataError


class WindowBatches(Batches):
    """Cuts a sequence into windows: `length` tokens, and one place further the tokens that follow each.

    Neighbouring windows share one token, so each token but the first is a target once. Shuffled windows
    begin at a random place that changes with the epoch: the borders, before which a model sees nothing,
    move.

    Args:
        tokens: the sequence, integers of shape `[size]`.
        length: number of tokens of an input.
        batch_size: number of windows of every batch.
        shuffle: whether each epoch has an order and a beginning of its own; otherwise windows follow one
            another.
        seed: seed of both, 0 to 2**64 - 1.
        epochs: how often to go through the sequence; None for endlessly.
        remainder: "drop" or "pad", as for `Batches`.
        name: what error messages call this data.

    Raises:
        DataError: if the sequence does not hold one window, and for the reasons that `Batches` has.

    Example:
        >>> import numpy as np
        >>> data = WindowBatches(np.arange(7), 3, 2, shuffle=False)
        >>> batch = next(iter(data))
        >>> batch["tokens"].tolist(), batch["targets"].tolist()
        ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])
    """

    def __init__(
        self,
        tokens: NDArray[Any],
        length: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        epochs: int | None = None,
        remainder: Literal["drop", "pad"] = "drop",
        name: str = "data",
    ) -> None:
        self.name = name
        self.length = length = self._integer("length", length)
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise DataError(
                f"the tokens of `{name}` are an array of shape {list(tokens.shape)} and type {tokens.dtype}, "
                f"but a sequence has one axis of integers. Encode a text first, as in `encode(text)`, and "
                f"join several with `np.concatenate`."
            )
        if length < 1:
            raise DataError(f"`length` of `{name}` is {length}, but a window needs a token. Write `length=128`.")
        if len(tokens) <= length:
            raise DataError(
                f"`{name}` has {len(tokens)} tokens, too few for one window of {length} tokens and the one "
                f"that follows. Write `length={max(len(tokens) - 1, 1)}` or less, or use a longer text."
            )
        # The last stretch is left for the offset, so that each epoch has the same number of windows.
        size = max(len(tokens) // length - 1, 1) if shuffle else (len(tokens) - 1) // length
        self._windows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)
        self._offsets = min(length, len(self._windows) - (size - 1) * length) if shuffle else 1
        super().__init__(
            lambda indices: self.rows(indices, 0),
            size,
            batch_size,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            remainder=remainder,
            name=name,
        )

    def rows(self, indices: Indices, epoch: int) -> dict[str, NDArray[np.int32]]:
        """Returns the windows of some indices.

        Args:
            indices: int64 of shape `[batch]`.
            epoch: count of the epoch, from 0.

        Returns:
            "tokens" and "targets", int32 of shape `[batch, length]`.
        """
        windows = self._windows[indices * self.length + epoch_offset(self.seed, epoch, self._offsets)]
        return {"tokens": windows[:, :-1].astype(np.int32), "targets": windows[:, 1:].astype(np.int32)}
