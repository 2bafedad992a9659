"""Training and evaluation mode of a tree of modules."""

from collections.abc import Iterable
from typing import Any


class ModeScope:
    """Sets `training` on modules at once, and restores what it was when used as a context manager."""

    __slots__ = ("_before",)

    def __init__(self, modules: Iterable[Any], *, training: bool) -> None:
        self._before = [(module, module.training) for module in modules if hasattr(module, "training")]
        for module, _ in self._before:
            _set_mode(module, training)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        for module, training in self._before:
            _set_mode(module, training)


def _set_mode(module: Any, training: bool) -> None:
    # Training mode is the class default and is not stored, so that a module that went to evaluation and back has the
    # structure it had before, and compiled functions are found again.
    if module.training == training:
        return
    if training:
        del module.training
    else:
        module.training = False
