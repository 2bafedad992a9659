"""The order of the examples in an epoch, as a function of the seed and the epoch alone.

The bits come from the counter-based generator Philox with the key (seed, epoch), so that no epoch depends
on the ones before it. They are used raw: NumPy promises that the stream of a bit generator never changes,
but not what the methods of `Generator` make of it, and a run that is continued under a newer NumPy has to
go on in the order it began with.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST_SEED = 2**64 - 1

_ORDER, _OFFSET = 0, 1
"""Uses of the random bits of an epoch; each has a part of the counter of its own, so that they are
independent."""


def epoch_order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Returns the shuffled indices of one epoch.

    Args:
        seed: 0 to 2**64 - 1.
        epoch: count of the epoch, from 0.
        size: number of examples.

    Returns:
        Each of `0 .. size - 1` once, shape `[size]`; the same on every machine.

    Example:
        >>> sorted(epoch_order(seed=0, epoch=3, size=5).tolist())
        [0, 1, 2, 3, 4]
        >>> (epoch_order(0, 3, 100) == epoch_order(0, 4, 100)).all().item()
        False
    """
    # A stable sort, since two equal draws must not leave the order to the sorting routine of the machine.
    return np.argsort(_bits(seed, epoch, _ORDER, size), kind="stable").astype(np.int64, copy=False)


def epoch_offset(seed: int, epoch: int, limit: int) -> int:
    """Returns a random number for a whole epoch, independent of its order.

    Args:
        seed: 0 to 2**64 - 1.
        epoch: count of the epoch, from 0.
        limit: one more than the largest number to return; at least 1.

    Returns:
        A number in `0 .. limit - 1`.

    Example:
        >>> 0 <= epoch_offset(seed=0, epoch=3, limit=128) < 128
        True
    """
    return int(_bits(seed, epoch, _OFFSET, 1)[0]) % limit


def _bits(seed: int, epoch: int, use: int, count: int) -> NDArray[np.uint64]:
    key = np.array([seed, epoch], np.uint64)
    return np.random.Philox(key=key, counter=np.array([0, 0, 0, use], np.uint64)).random_raw(count)
