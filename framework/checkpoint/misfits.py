"""What is said when a checkpoint does not fit the object that it is restored into."""

import difflib
from collections.abc import Mapping, Sequence

_SHOWN = 20

_HEADINGS = {
    "missing": "Missing from the checkpoint",
    "unexpected": "In the checkpoint and not in the object",
    "shape": "Other shapes",
    "dtype": "Other dtypes",
    "class": "Other classes",
    "sharing": "Shared differently",
    "hyperparameter": "Hyperparameters that cannot be read back",
}

_REMEDIES = {
    "missing": "build the object with the arguments of the run that was saved",
    "unexpected": "build the object with the arguments of the run that was saved (one that makes arrays at "
    "its first call has to be called once first)",
    "shape": "build the object with the sizes of the run that was saved",
    "dtype": "build the object with the dtypes of the run that was saved",
    "class": "build the object from the classes of the run that was saved, and name packages of your own "
    "that it uses "
    'in `Checkpoints(directory, allow=["my_package"])`',
    "sharing": "share the same objects as in the run that was saved",
    "hyperparameter": "store values that have a name (functions at module level, frozen dataclasses, "
    "numbers), or set "
    'them before restoring, and name packages of your own in `Checkpoints(directory, allow=["my_package"])`',
}


def misfit_text(
    problems: Mapping[str, Sequence[str]],
    *,
    name: str,
    step: int,
    directory: str,
    saved: Sequence[str],
    present: Sequence[str],
) -> str:
    """Returns the error text for a checkpoint that does not fit.

    Args:
        problems: for each kind of misfit the texts of its cases.
        name: the class of the object.
        step: the step of the checkpoint.
        directory: where it is.
        saved: the paths of the leaves of the checkpoint.
        present: the paths of the leaves of the object.

    Returns:
        One paragraph.

    Example:
        >>> where = {"name": "Net", "step": 3, "directory": "runs"}
        >>> text = misfit_text({"missing": ["weight"]}, saved=["weights"], present=[], **where)
        >>> text.split(". ")[1]
        'Missing from the checkpoint: weight (nearest there: weights)'
    """
    others = {"missing": saved, "unexpected": present}
    sentences = [f"the checkpoint of step {step} in {directory} does not fit this {name}, and nothing was changed"]
    for kind, heading in _HEADINGS.items():
        if kind in problems:
            cases = [_with_nearest(case, others.get(kind, ())) for case in problems[kind][:_SHOWN]]
            more = len(problems[kind]) - len(cases)
            sentences.append(f"{heading}: {'; '.join(cases)}{f'; and {more} more' if more else ''}")
    remedies = dict.fromkeys(_REMEDIES[kind] for kind in _HEADINGS if kind in problems)
    remedy = "; ".join(remedies)
    sentences.append(
        f"{remedy[0].upper()}{remedy[1:]}, or restore another step: `checkpoints.restore(object, step=...)`"
    )
    return ". ".join(sentences) + "."


def _with_nearest(path: str, others: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(path, others, n=1, cutoff=0.6)
    return f"{path} (nearest there: {nearest[0]})" if nearest else path
