"""The directory of a run's checkpoints: one directory for each step, complete or not counted.

A step is written beside its place, sealed with a manifest, and moved to its place by one rename. So a process
that is killed at any moment leaves the former steps as they were.
"""

import logging
import os
import shutil
from pathlib import Path

from framework.checkpoint.manifest import Damaged, Manifest, check_files, read_manifest

_logger = logging.getLogger(__name__)

PARTIAL = ".partial"
ASIDE = ".superseded"
_DELETED = ".deleted"


class StepDirectory:
    """Finds, seals and removes the steps below one directory.

    Args:
        path: the directory; it need not exist.

    Example:
        >>> import tempfile
        >>> steps = StepDirectory(Path(tempfile.mkdtemp()))
        >>> (steps.path / "20").mkdir()  # empty: no step
        >>> steps.newest() is None
        True
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def place(self, step: int) -> Path:
        """Returns the path of a finished step."""
        return self.path / str(step)

    def candidates(self) -> list[int]:
        """Returns the numbers of all directories named like a step, complete or not, in ascending order."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        numbers = {name.removesuffix(PARTIAL) for name in names}
        return sorted(int(name) for name in numbers if name.isascii() and name.isdecimal() and str(int(name)) == name)

    def newest(self) -> int | None:
        """Returns the newest complete step, or None."""
        return next((step for step in reversed(self.candidates()) if self._is_complete(step)), None)

    def complete(self) -> list[int]:
        """Returns all complete steps, in ascending order."""
        return [step for step in self.candidates() if self._is_complete(step)]

    def open(self, step: int) -> tuple[Path, Manifest]:
        """Returns the directory and manifest of a complete step.

        Args:
            step: its number.

        Raises:
            Damaged: if the step is not complete.
        """
        # A sealed directory that was not moved any more is complete: only the rename was missing when the
        # process ended.
        partial = Path(f"{self.place(step)}{PARTIAL}")
        path = partial if partial.is_dir() and not self.place(step).exists() else self.place(step)
        if not path.is_dir():
            raise Damaged("there is no such directory")
        manifest = read_manifest(path)
        if manifest.step != step:
            raise Damaged(f"it holds step {manifest.step}")
        check_files(path, manifest)
        return path, manifest

    def _is_complete(self, step: int) -> bool:
        try:
            self.open(step)
        except Damaged:
            return False
        return True

    def begin(self, step: int) -> Path:
        """Makes the empty directory in which a step is written, and clears what killed processes left."""
        self.path.mkdir(parents=True, exist_ok=True)
        for left in list(self.path.iterdir()):
            if left.name.endswith(PARTIAL):
                self._finish_or_drop(left)
            elif left.name.endswith(_DELETED):
                shutil.rmtree(left)
        path = Path(f"{self.place(step)}{PARTIAL}")
        path.mkdir()
        return path

    def _finish_or_drop(self, partial: Path) -> None:
        name = partial.name.removesuffix(PARTIAL)
        if name.isdecimal() and not self.place(int(name)).exists() and self._is_complete(int(name)):
            partial.rename(self.place(int(name)))
        else:
            shutil.rmtree(partial)

    def drop(self, partial: Path) -> None:
        """Removes a directory whose step could not be written."""
        shutil.rmtree(partial, ignore_errors=True)

    def commit(self, step: int, partial: Path) -> None:
        """Moves a sealed step to its place, and the steps that it supersedes aside.

        Args:
            step: its number.
            partial: the directory from `begin`, with a manifest.
        """
        newer = [other for other in self.candidates() if other > step and self._is_complete(other)]
        for other in sorted(newer, reverse=True):
            self._move_aside(other, f"training went back to before it and was saved again at step {step}")
        if self.place(step).exists():
            self._move_aside(step, "the step was saved again")
        partial.rename(self.place(step))
        _sync(self.path)

    def _move_aside(self, step: int, why: str) -> None:
        place, number = self.place(step), 1
        while (aside := Path(f"{place}{ASIDE}-{number}")).exists():
            number += 1
        place.rename(aside)
        _logger.warning(
            "checkpoint %d was moved to %s, because %s; delete that directory if you do not need it",
            step,
            aside,
            why,
        )

    def retain(self, keep: int) -> None:
        """Deletes all complete steps but the newest `keep`."""
        for step in self.complete()[:-keep]:
            doomed = Path(f"{self.place(step)}{_DELETED}")  # never half deleted under the name of a step
            try:
                self.place(step).rename(doomed)
                shutil.rmtree(doomed)
            except OSError as error:  # the new step is saved all the same
                _logger.warning("the old checkpoint %d could not be deleted: %s", step, error)


def _sync(directory: Path) -> None:
    """Makes a rename last through a power failure, on systems where directories can be synchronised."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
