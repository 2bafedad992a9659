"""The errors a user of the framework can cause, each a paragraph that says what to write instead.

The command line turns every `FrameworkError` into one printed paragraph and exit code 2; anything else is a fault
of ours and keeps its traceback. This file imports the standard library only, so that errors can be raised before JAX
is loaded.
"""

import contextlib
import functools
import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).absolute().parent}{os.sep}"


class FrameworkError(Exception):
    """Base class of every error that the framework raises on purpose."""


class ModuleError(FrameworkError, TypeError):
    """An attribute of a `Module` was given a value that it cannot hold."""


class LiftError(FrameworkError, RuntimeError):
    """A transformation was used in a way that would lose a mutation or freeze a value."""


class ConfigError(FrameworkError):
    """A configuration key or value is wrong."""


class DataError(FrameworkError):
    """A data source or a batch is unusable."""


class CheckpointError(FrameworkError):
    """A checkpoint cannot be written, found or read."""


class RunError(FrameworkError):
    """A run directory cannot be created, claimed or continued."""


class TrainingError(FrameworkError):
    """Training reached a state that it must not go on from."""


def user_line() -> str:
    """Returns the file and line of the innermost caller outside of this package and of JAX, as `train.py:88`."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE) and not filename.startswith("<") and not _library(filename):
            return f"{Path(filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown line"


def _library(filename: str) -> bool:
    """Tells whether a source file belongs to an installed library, whose lines say nothing to the user."""
    return f"{os.sep}site-packages{os.sep}" in filename or filename in (contextlib.__file__, functools.__file__)
