"""What a shuffled batch of 64 digits costs by a vectorised gather and through a Grain pipeline of single examples."""

from collections.abc import Callable, Iterator
from typing import Any

import grain
import numpy as np
from _timing import compare

import framework as fw


class Rows:
    """The digits as a random-access source of single examples."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays["label"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in self._arrays.items()}


def main() -> None:
    whole = next(iter(fw.data.digits(batch_size=1024).train))
    batches = iter(fw.data.ArrayBatches(whole, 64, shuffle=True))

    def pipeline(threads: int, buffer: int) -> Iterator[Any]:
        dataset = grain.MapDataset.source(Rows(whole)).seed(0).shuffle().repeat().batch(64, drop_remainder=True)
        return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=buffer)))

    def take(iterator: Iterator[Any]) -> Callable[[], object]:
        return lambda: next(iterator)

    print("one shuffled batch of 64 digits")
    compare({"ArrayBatches": take(batches), "Grain, no threads": take(pipeline(0, 0))}, calls=50)


if __name__ == "__main__":
    main()
