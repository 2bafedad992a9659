"""`python_source`: the next character of Python source files, a text that every machine with Python has."""

import os
import sysconfig

from framework.data.characters import decode, encode, vocabulary
from framework.data.corpus import read_corpus
from framework.data.splits import Splits
from framework.data.windows import WindowBatches

__all__ = ["decode", "encode", "python_source", "vocabulary"]


def python_source(
    batch_size: int = 32,
    length: int = 128,
    root: str | os.PathLike[str] | None = None,
    *,
    eval_batch_size: int = 64,
    seed: int = 0,
    max_bytes: int = 8_000_000,
    holdout_one_in: int = 20,
) -> Splits:
    """Returns characters of the Python files of a folder, with whole files held out for evaluation.

    Batches have "tokens" and "targets", int32 of shape `[batch, length]`: each target is the character that
    follows.

    Args:
        batch_size: number of windows in a training batch.
        length: number of characters of a window.
        root: folder with the files; None for the standard library of this Python.
        eval_batch_size: number of windows in an evaluation batch.
        seed: seed of the order of the training windows; the division into parts never changes.
        max_bytes: reading ends with the file that brings the training part to this size.
        holdout_one_in: one file in so many is held out, chosen by a hash of its relative path.

    Returns:
        The parts train and eval; facts are `vocabulary_size`, `length`, and for each part the number of
        files and characters.

    Raises:
        DataError: if there are no files to read, if one of the parts is too short, or if an argument is out
            of range.

    Example:
        >>> splits = python_source(batch_size=4, length=64, max_bytes=200_000, holdout_one_in=3)
        >>> batch = next(iter(splits.train))
        >>> batch["tokens"].shape, (batch["tokens"][:, 1:] == batch["targets"][:, :-1]).all().item()
        ((4, 64), True)
    """
    corpus = read_corpus(
        sysconfig.get_path("stdlib") if root is None else root,
        max_bytes=max_bytes,
        holdout_one_in=holdout_one_in,
    )
    train, held_out = (encode("".join(texts.values())) for texts in (corpus.train, corpus.eval))
    return Splits(
        train=WindowBatches(train, length, batch_size, shuffle=True, seed=seed, name="python_source/train"),
        eval=WindowBatches(
            held_out,
            length,
            eval_batch_size,
            shuffle=False,
            epochs=1,
            remainder="pad",
            name="python_source/eval",
        ),
        facts={
            "vocabulary_size": len(vocabulary()),
            "length": length,
            "train_files": len(corpus.train),
            "train_characters": len(train),
            "eval_files": len(corpus.eval),
            "eval_characters": len(held_out),
        },
    )
