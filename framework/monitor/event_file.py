"""One TensorBoard event file, named and begun so that a resumed run reads as one."""

import importlib
import os
import re
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from framework.errors import RunError

_NAME = re.compile(r"tfevents\.(\d+)")


class EventFile:
    """Writes the events of one process into one sub-run.

    TensorBoard joins all event files of a directory in the order of their names. Two rules make a run that
    was killed and resumed look like one that never stopped:

    * The name is unique (process id and random part: an existing file is never opened again, which would
      empty it) and sorts after every file that is already there, even within the same second or after the
      clock was set back.
    * The first event is a session start. TensorBoard's Python loader throws away what earlier files hold from
      that step on; its default loader, which ignores session starts, does so for each tag when a smaller step
      arrives. The Python loader disregards the first session start it meets, hence a fresh run writes one
      too.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        """Creates the directory and the file.

        Args:
          directory: Folder of the sub-run.
          first_step: Step of the checkpoint the run continues from; 0 for a fresh run.

        Raises:
          RunError: The file cannot be created or tensorboardX is not installed.
        """
        try:
            # Imported here because tensorboardX imports torch where that is installed: two seconds nobody
            # asked for.
            self._events: Any = importlib.import_module("tensorboardX.proto.event_pb2")
            record_writer: Any = importlib.import_module("tensorboardX.record_writer").RecordWriter
        except ImportError as error:
            raise RunError(
                f"TensorBoard files were asked for in {directory}, but tensorboardX cannot be imported "
                f"({error}); install it with `pip install tensorboardX`, or switch the files off with "
                "monitor.tensorboard=false."
            ) from error
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.path = directory / _next_name(directory)
            self._writer = record_writer(str(self.path))
            self.write(self._events.Event(wall_time=time.time(), file_version="brain.Event:2"))
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            step = first_step + 1 if first_step else 0
            self.write(self._events.Event(wall_time=time.time(), step=step, session_log=start))
            self.flush()
        except OSError as error:
            raise RunError(
                f"No TensorBoard event file can be created in {directory} ({error}); make it a folder this "
                "user may write to, or switch the files off with monitor.tensorboard=false."
            ) from error

    def write(self, event: Any) -> None:
        """Appends one `Event` message; it may stay in a buffer until `flush`."""
        self._writer.write(event.SerializeToString())

    def flush(self) -> None:
        """Returns when every event written so far is on disk."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def has_event_files(directory: Path) -> bool:
    """Tells whether a folder is a sub-run: whether any event file lies directly in it."""
    return directory.is_dir() and any(_NAME.search(file.name) for file in directory.iterdir())


def _next_name(directory: Path) -> str:
    """Returns an unused file name that sorts after those of all event files in the directory."""
    seconds = [int(match[1]) for file in directory.iterdir() if (match := _NAME.search(file.name))]
    second = max([int(time.time()), *(second + 1 for second in seconds)])
    return f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}"
