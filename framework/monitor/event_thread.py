"""The one thread that writes TensorBoard events, so that the training loop never waits for a disk."""

import atexit
import dataclasses
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framework.errors import FrameworkError, RunError
from framework.monitor.event_file import EventFile, has_event_files

# How long an event may stay in memory: a watched curve should move, but each flush costs a disk write.
_FLUSH_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class _Request:
    action: Callable[[], None]
    done: threading.Event | None = None
    last: bool = False


class EventThread:
    """Writes events into the event files of a directory, in the order in which they were given.

    The first error stops all writing: an event file with a damaged record is unreadable from there on, so
    going on would only lose more. The error is raised by every later call.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        """Opens the sub-runs that exist, and "train", and starts the thread.

        Args:
          directory: Folder of the sub-runs.
          first_step: Step of the checkpoint the run continues from; 0 for a fresh run.

        Raises:
          RunError: A file cannot be created.
        """
        self._directory = directory
        self._first_step = first_step
        self._files: dict[str, EventFile] = {}
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._error: FrameworkError | None = None
        self._process = os.getpid()
        self.closed = False
        # Sub-runs of earlier attempts are opened even if nothing is written to them yet: what a killed
        # attempt wrote after its last checkpoint has to disappear from all of them now. Other sub-runs open
        # with their first event, because an empty one would be listed.
        earlier = [path.name for path in sorted(directory.iterdir())] if directory.is_dir() else []
        for sub_run in dict.fromkeys(["train", ".", *earlier]):
            if sub_run == "train" or has_event_files(directory / sub_run):
                self._files[sub_run] = EventFile(directory / sub_run, first_step)
        self._thread = threading.Thread(target=self._run, name="tensorboard-writer", daemon=True)
        self._thread.start()
        # A daemon thread dies with the interpreter; this writes what a program that forgot close() still has
        # queued.
        atexit.register(self.close)

    def put(self, sub_run: str, event: Any) -> None:
        """Queues one `Event` message for a sub-run ("." is the directory itself), without waiting."""
        self._raise_error()
        self._requests.put(_Request(lambda: self._write(sub_run, event)))

    def drain(self) -> None:
        """Returns when everything queued so far is on disk."""
        self._wait_for(self._flush)
        self._raise_error()

    def close(self) -> None:
        """Drains, ends the thread and closes the files; a second call does nothing."""
        # A forked child inherits this object but not the thread, and would wait for it forever.
        if self.closed or os.getpid() != self._process:
            return
        self.closed = True
        atexit.unregister(self.close)
        self._wait_for(self._flush, last=True)
        self._thread.join()
        for file in self._files.values():
            try:
                file.close()
            except OSError as error:
                self._fail(error)
        self._raise_error()

    def _wait_for(self, action: Callable[[], None], *, last: bool = False) -> None:
        done = threading.Event()
        self._requests.put(_Request(action, done, last))
        done.wait()

    def _run(self) -> None:
        flush_at: float | None = None
        while True:
            try:
                wait = None if flush_at is None else max(0.0, flush_at - time.monotonic())
                request = self._requests.get(timeout=wait)
            except queue.Empty:
                self._guard(self._flush)
                flush_at = None
                continue
            self._guard(request.action)
            if request.done is not None:
                flush_at = None
                request.done.set()
            elif flush_at is None:
                flush_at = time.monotonic() + _FLUSH_SECONDS
            if request.last:
                return

    def _guard(self, action: Callable[[], None]) -> None:
        """Runs an action of the thread unless an earlier one failed; keeps the first error for the caller."""
        if self._error is not None:
            return
        try:
            action()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._error is not None:
            return
        if isinstance(error, FrameworkError):
            self._error = error
        else:
            files = ", ".join(str(file.path) for file in self._files.values())
            self._error = RunError(
                f"TensorBoard events could not be written to {files} ({type(error).__name__}: {error}), so "
                "the curves end before this point; free some space or repair the disk, then start the same "
                "run again: it continues from its newest checkpoint and writes the missing points."
            )
            self._error.__cause__ = error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self, sub_run: str, event: Any) -> None:
        if sub_run not in self._files:
            self._files[sub_run] = EventFile(self._directory / sub_run, self._first_step)
        self._files[sub_run].write(event)

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()
