"""The nearest right word to a wrong one."""

import difflib
from collections.abc import Iterable

_LISTED = 20  # more names than that are a page, not a sentence


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Finds what somebody probably meant.

    Args:
        word: the word that was written.
        candidates: the words that would have been right.

    Returns:
        The most similar candidate, else the one that `word` abbreviates by its initials or its beginning;
        None if no candidate is near.

    Example:
        >>> nearest("max_stepz", ["max_steps", "log_every"]), nearest("lr", ["learning_rate", "momentum"])
        ('max_steps', 'learning_rate')
    """
    names = sorted(set(candidates))
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    initials = [name for name in names if "".join(part[:1] for part in name.split("_")) == word]
    begun = [name for name in names if len(word) > 2 and (name.startswith(word) or word.startswith(name))]
    return next(iter(initials + begun), None)


def did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """Writes the sentence that names the nearest candidate, or all of them when none is near.

    Args:
        word: the word that was written.
        candidates: the words that would have been right.
        prefix: put before each candidate, for example `trainer.`.

    Returns:
        A sentence without its final full stop; empty when there are no candidates.

    Example:
        >>> did_you_mean("widht", ["width", "depth"], prefix="model.")
        "did you mean 'model.width'?"
        >>> did_you_mean("colour", ["width", "depth"])
        'it can be: depth, width'
    """
    names = sorted(set(candidates))
    if not names:
        return ""
    name = nearest(word, names)
    if name is not None:
        return f"did you mean '{prefix}{name}'?"
    if len(names) > _LISTED:
        return "nothing there has a similar name"
    return "it can be: " + ", ".join(prefix + name for name in names)
