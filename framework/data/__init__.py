"""Where batches come from: their order, their position, and reading them ahead; needs no JAX."""

from framework.data.arrays import ArrayBatches
from framework.data.batches import Batches, BatchIterator
from framework.data.checks import check_labels
from framework.data.digits import digits
from framework.data.prefetch import Prefetch
from framework.data.python_source import decode, encode, python_source, vocabulary
from framework.data.splits import Splits
from framework.data.windows import WindowBatches

__all__ = [
    "ArrayBatches",
    "BatchIterator",
    "Batches",
    "Prefetch",
    "Splits",
    "WindowBatches",
    "check_labels",
    "decode",
    "digits",
    "encode",
    "python_source",
    "vocabulary",
]
