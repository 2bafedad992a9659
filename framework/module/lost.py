"""Changes that plain JAX loses: made on an argument of a traced function that does not return it.

`jax.jit` and its like rebuild a module for the traced function and throw it away afterwards. What the function writes to
it comes out only if it is returned; if not, a warning says what was lost and where it was written.
"""

import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import jax

from framework.errors import user_line

_JAX = str(Path(jax.__file__).parent)
_TREE_FILES = ("tree.py", "tree_util.py")
ABSENT = object()
"""Stands for the value of an attribute that is not there."""


class LostChangeWarning(UserWarning):
    """A change was made to an object inside of a plain JAX transformation, and was not returned from it."""


class Pending:
    """The changes of one object since it was rebuilt for a traced function or last flattened.

    Attributes:
        lines: for each changed attribute the user's line.
    """

    __slots__ = ("_before", "_watched", "lines")

    def __init__(self) -> None:
        self.lines: dict[Any, str] = {}
        self._before: dict[Any, Any] = {}
        self._watched = False

    def note(self, owner: Any, attribute: Any, new: Any = ABSENT) -> None:
        """Writes down a change that is about to be made; one that puts back what was there before cancels it."""
        content = owner._storage()
        old = content.get(attribute, ABSENT) if isinstance(content, dict) else ABSENT
        if attribute in self.lines and new is self._before[attribute]:
            del self.lines[attribute]
            return
        self._before.setdefault(attribute, old)
        self.lines[attribute] = user_line()
        if not self._watched:
            self._watched = True
            weakref.finalize(owner, _warn, type(owner).__name__, self.lines).atexit = False

    def returned(self) -> None:
        """Notes that the object was flattened: what was changed so far is on its way out."""
        self.lines.clear()


def _warn(name: str, lines: dict[Any, str]) -> None:
    if not lines:
        return
    where = ", ".join(
        f"{name if attribute is None else f'{name}.{attribute}'} ({line})" for attribute, line in lines.items()
    )
    warnings.warn(
        f"a change was lost: {where} was written inside a plain JAX transformation, which gives the function a copy of "
        f"the {name} and throws it away. Use `fw.jit`, `fw.grad` and the other `fw` transformations, which carry the "
        f"change out, or return the {name} from the function.",
        LostChangeWarning,
        stacklevel=2,
    )


def rebuilt_as_argument() -> bool:
    """Tells whether the caller's caller is JAX making arguments for a traced function, not a tree operation of the user."""
    frame = sys._getframe(2)
    while frame is not None and _is_tree_function(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_JAX)


def _is_tree_function(filename: str) -> bool:
    return filename.startswith(_JAX) and filename.endswith(_TREE_FILES)
