"""`digits`: 1797 handwritten digits of 8 x 8 pixels, which scikit-learn brings along."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from framework.data.arrays import ArrayBatches
from framework.data.splits import Splits
from framework.errors import DataError

_NUM_CLASSES = 10
_LARGEST_PIXEL = 16
_SPLIT_SEED = 0
"""Fixed, so that results with different seeds are measured on the same examples."""


def digits(
    batch_size: int = 64,
    eval_batch_size: int = 256,
    seed: int = 0,
    flat: bool = False,
    test_fraction: float = 0.2,
    *,
    eval_fraction: float = 0.1,
) -> Splits:
    """Returns the handwritten digits of scikit-learn in three parts, each with the same share of every class.

    Batches have "image", float32 from 0 to 1 of shape `[batch, 8, 8, 1]` or `[batch, 64]`, and "label",
    int32 of shape `[batch]`. The evaluation and test batches also have a "mask", as the last one is padded.

    Args:
        batch_size: number of rows in a training batch.
        eval_batch_size: number of rows in an evaluation or test batch.
        seed: seed of the order of the training examples; the division into parts never changes.
        flat: whether an image is one row of 64 pixels, for models without convolutions.
        test_fraction: share of the examples that are held out for the final measurement.
        eval_fraction: share of the examples that are held out for evaluation during training.

    Returns:
        The parts; facts are `num_classes` and `shape`, that of one image, and the number of examples of
        each part.

    Raises:
        DataError: if scikit-learn is not installed, or if an argument is out of range.

    Example:
        >>> splits = digits(batch_size=32)
        >>> batch = next(iter(splits.train))
        >>> batch["image"].shape, batch["label"].dtype, splits.facts["shape"]
        ((32, 8, 8, 1), dtype('int32'), (8, 8, 1))
    """
    images, labels = _load()
    shape = (64,) if flat else (8, 8, 1)
    images = (images / _LARGEST_PIXEL).astype(np.float32).reshape(-1, *shape)
    parts = _split(labels, eval_fraction, test_fraction)
    arrays = {part: {"image": images[rows], "label": labels[rows]} for part, rows in parts.items()}

    def held_out(part: str) -> ArrayBatches:
        return ArrayBatches(
            arrays[part], eval_batch_size, shuffle=False, epochs=1, remainder="pad", name=f"digits/{part}"
        )

    return Splits(
        train=ArrayBatches(arrays["train"], batch_size, shuffle=True, seed=seed, name="digits/train"),
        eval=held_out("eval"),
        test=held_out("test"),
        facts={
            "num_classes": _NUM_CLASSES,
            "shape": shape,
            **{f"{part}_examples": len(rows) for part, rows in parts.items()},
        },
    )


def _load() -> tuple[NDArray[Any], NDArray[np.int32]]:
    try:
        # Takes a second to import, and is only needed here.
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        raise DataError(
            f"`digits` takes its images from scikit-learn, which is not installed (no module "
            f"`{error.name}`). Install it with `pip install scikit-learn`."
        ) from error
    loaded = cast(Any, load_digits())
    return loaded.data, loaded.target.astype(np.int32)


def _split(labels: NDArray[np.int32], eval_fraction: float, test_fraction: float) -> dict[str, NDArray[np.int64]]:
    """Divides the examples at random, class by class in the same proportions."""
    from sklearn import model_selection  # pyright: ignore[reportMissingTypeStubs]

    divide = cast(Any, model_selection).train_test_split
    count = len(labels)
    held_out = {"eval": round(eval_fraction * count), "test": round(test_fraction * count)}
    if min(*held_out.values(), count - sum(held_out.values())) < _NUM_CLASSES:
        raise DataError(
            f"`eval_fraction={eval_fraction}` and `test_fraction={test_fraction}` leave a part of the "
            f"{count} digits with less than one example of each of the {_NUM_CLASSES} classes. Write for "
            f"example `eval_fraction=0.1, test_fraction=0.2`: both above 0, and together well below 1."
        )
    rows = np.arange(count, dtype=np.int64)
    parts: dict[str, NDArray[np.int64]] = {}
    for part in ("test", "eval"):
        rows, parts[part] = divide(rows, test_size=held_out[part], stratify=labels[rows], random_state=_SPLIT_SEED)
    return {"train": rows, "eval": parts["eval"], "test": parts["test"]}
