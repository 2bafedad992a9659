"""`Checkpoints`: the saved steps of a run, written in the background and restored in place."""

import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from framework.checkpoint.arguments import encode_state, step_number
from framework.checkpoint.directory import StepDirectory
from framework.checkpoint.manifest import Damaged, Manifest
from framework.checkpoint.matching import Matcher
from framework.checkpoint.misfits import misfit_text
from framework.checkpoint.rebuilding import rebuild
from framework.checkpoint.snapshot import Snapshot, read_leaves, take, write
from framework.checkpoint.structure import describe
from framework.errors import CheckpointError
from framework.module.base import Module
from framework.module.codec import ALLOWED, CodecError, decode
from framework.module.graph import walk
from framework.module.ownership import check_write

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Restored:
    """What came back besides the module.

    Attributes:
        step: the step of the checkpoint.
        data: the position of the data, as it was passed to `save`.
        trainer: the state of the training loop, as it was passed to `save`.
    """

    step: int
    data: dict[Any, Any]
    trainer: dict[Any, Any]


class Checkpoints:
    """Saves and restores a module, with everything in it, under numbered steps of one directory.

    A checkpoint holds the leaves with exact bits, the hyperparameters, which objects are shared, the position
    of the data and the state of the loop. It is complete or does not count, at whatever moment the process is
    killed.

    Args:
        directory: where the steps are; made by the first save.
        every: how many steps a trainer does from one checkpoint to the next.
        keep: how many of the newest steps are kept.
        allow: packages of your own that a checkpoint may import classes and functions from, besides this
            framework, JAX, optax, NumPy and the modules that the classes of the restored object are from.

    Raises:
        CheckpointError: if an argument is no positive number, or the directory is a file.

    Example:
        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> class Sum(fw.Module):
        ...     total: fw.State
        ...     def __init__(self):
        ...         self.total = jnp.zeros(())
        >>> tracker = Sum()
        >>> tracker.total = jnp.ones(())
        >>> with fw.Checkpoints(tempfile.mkdtemp()) as checkpoints:
        ...     checkpoints.save(10, tracker, data={"position": 640})
        ...     checkpoints.wait()
        ...     tracker.total = tracker.total * 5
        ...     restored = checkpoints.restore(tracker)
        >>> float(tracker.total), restored.step, restored.data
        (1.0, 10, {'position': 640})
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, every: int = 200, keep: int = 3, allow: Sequence[str] = ()
    ) -> None:
        given: dict[str, Any] = {"every": every, "keep": keep}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CheckpointError(
                    f"Checkpoints was given {name}={value!r}, which is not a whole number above zero. Write "
                    f"`Checkpoints(directory, {name}={200 if name == 'every' else 3})`."
                )
        self.directory = Path(directory).absolute()
        if self.directory.exists() and not self.directory.is_dir():
            raise CheckpointError(
                f"{self.directory} is a file, and checkpoints need a directory. Name another one: "
                f"`Checkpoints({str(self.directory) + '-checkpoints'!r})`."
            )
        self.every, self.keep = every, keep
        self._allow = tuple(allow)
        self._steps = StepDirectory(self.directory)
        self._thread: ThreadPoolExecutor | None = None
        self._pending: tuple[int, Future[None]] | None = None
        self._own: weakref.WeakSet[Module] = weakref.WeakSet()

    def save(
        self,
        step: int,
        module: Module,
        *,
        data: Mapping[Any, Any] | None = None,
        trainer: Mapping[Any, Any] | None = None,
        wait: bool = False,
    ) -> None:
        """Saves a module; returns as soon as its arrays are copied to the host.

        The arrays may be donated or overwritten right afterwards. A save that comes while the former one is
        still being written waits for it. Steps that are newer than this one, or have its number, are moved
        aside.

        Args:
            step: the number of the step, not negative.
            module: the module; everything that can be reached from it is saved.
            data: the position of the data: numbers, strings, and lists, tuples and dicts of them.
            trainer: the state of the training loop, of the same types.
            wait: whether to return only when the checkpoint is on disk.

        Raises:
            CheckpointError: if something cannot be saved, the directory cannot be written, or the former save
                failed.
        """
        number = step_number(step)
        self.wait()
        snapshot = take(number, module, data=encode_state("data", data), trainer=encode_state("trainer", trainer))
        self._check_writable(number)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending = number, self._thread.submit(self._write, snapshot)
        self._own.add(module)
        if wait:
            self.wait()

    def _check_writable(self, step: int) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not os.access(self.directory, os.W_OK | os.X_OK):
                raise PermissionError("no permission to write there")
        except OSError as error:
            raise self._failed(step, error) from error

    def _write(self, snapshot: Snapshot) -> None:
        partial = self._steps.begin(snapshot.step)
        try:
            write(snapshot, partial)
            self._steps.commit(snapshot.step, partial)
        except BaseException:
            self._steps.drop(partial)
            raise
        self._steps.retain(self.keep)

    def wait(self) -> None:
        """Returns when no save is under way any more.

        Raises:
            CheckpointError: if the last save failed and that was not reported yet.
        """
        if self._pending is None:
            return
        step, future = self._pending
        try:
            future.result()
        except Exception as error:
            raise self._failed(step, error) from error
        finally:
            if future.done():
                self._pending = None

    def _failed(self, step: int, error: Exception) -> CheckpointError:
        newest = self._steps.newest()
        kept = "There is no older checkpoint" if newest is None else f"The checkpoint of step {newest} is intact"
        reason = " ".join(str(error).split())[:300]
        return CheckpointError(
            f"the checkpoint of step {step} was not written to {self.directory} ({type(error).__name__}: "
            f"{reason}). {kept}. Make room or choose a directory that can be written, and save again: "
            f"`checkpoints.save({step}, module)`."
        )

    def latest(self) -> int | None:
        """Returns the newest complete step on disk, or None; a save that is under way does not count."""
        return self._steps.newest()

    def restore(self, module: Module, step: int | None = None) -> Restored:
        """Makes a module what it was at a step: in place, everything or nothing.

        Args:
            module: a module built as the saved one was. State and hyperparameters that it gained in training
                come back.
            step: the step; None for the newest complete one.

        Returns:
            The step, with the position of the data and the state of the loop.

        Raises:
            CheckpointError: if there is no such step, it is damaged, or it does not fit the module; the text
                lists what is missing, unexpected or different, and the module is as it was.
        """
        self.wait()
        number = self._find(step)
        try:
            path, manifest = self._steps.open(number)
            graph = walk([module])
            for node in graph.nodes:
                check_write(node, None)
            present, saved = describe(graph), manifest.structure
            own = module in self._own
            match = Matcher(saved, present, graph, allow=self._allow, own=own).run()
            if match.problems:
                raise CheckpointError(
                    misfit_text(
                        match.problems,
                        name=type(module).__name__,
                        step=number,
                        directory=str(self.directory),
                        saved=[leaf.path for leaf in saved.leaves],
                        present=[leaf.path for leaf in present.leaves],
                    )
                )
            now = graph.gather()
            like = [now[match.leaves[index]] if index in match.leaves else None for index in range(len(saved.leaves))]
            leaves = read_leaves(path, manifest, like)
            restored = self._restored(number, manifest)
        except (Damaged, CodecError) as error:
            raise self._unreadable(number, error) from error
        rebuild(saved, present, graph, match, leaves)
        self._own.add(module)
        changed = ", ".join(match.changed) or "none"
        _logger.info("restored step %d from %s; changed hyperparameters: %s", number, self.directory, changed)
        return restored

    def _restored(self, step: int, manifest: Manifest) -> Restored:
        allow = (*ALLOWED, *self._allow)
        return Restored(step, decode(manifest.data, allow=allow), decode(manifest.trainer, allow=allow))

    def _find(self, step: int | None) -> int:
        number = self._steps.newest() if step is None else step_number(step)
        if number is None:
            found = ", ".join(map(str, self._steps.candidates()))
            seen = f"the directories {found} are not complete" if found else "it has none at all"
            raise CheckpointError(
                f"there is no complete checkpoint in {self.directory} to restore ({seen}). Ask "
                f"`checkpoints.latest()` first, which is None then, or name the directory of the run: "
                "`Checkpoints(directory)`."
            )
        return number

    def _unreadable(self, step: int, error: Exception) -> CheckpointError:
        others = [other for other in self._steps.complete() if other != step]
        remedy = (
            f"Complete steps are {', '.join(map(str, others))}: `checkpoints.restore(module, step={others[-1]})`"
            if others
            else "There is no other complete step; name the directory of another run: `Checkpoints(directory)`"
        )
        return CheckpointError(
            f"the checkpoint of step {step} in {self.directory} cannot be restored, and nothing was changed: "
            f"{error}. {remedy}."
        )

    def close(self) -> None:
        """Waits for the last save and ends the background thread.

        Raises:
            CheckpointError: if the last save failed and that was not reported yet.
        """
        try:
            self.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
