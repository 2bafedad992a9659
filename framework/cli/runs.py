"""Run directories: made once, never shared, and a record of every attempt to finish the run.

A run directory holds config.yaml (resolved), overrides.yaml, run.json, train.log, metrics.jsonl, checkpoints/
and tensorboard/. config.yaml is written once; a later attempt's changes stand with the attempt in run.json.
"""

import contextlib
import datetime
import fcntl
import importlib.metadata
import json
import logging
import os
import platform
import secrets
import socket
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from framework.errors import RunError

_LOG = logging.getLogger(__name__)


class Run:
    r"""One run directory.

    Args:
        directory: an existing run directory.

    Raises:
        RunError: the directory is not a run.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = create(folder, "digits", "seed: 0\n", [])
        ...     run.directory.parent.name, run.config_text()
        ('digits', 'seed: 0\n')
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()
        if not (self.directory / "run.json").is_file():
            raise RunError(_not_a_run(self.directory))

    def config_text(self) -> str:
        """Reads config.yaml, the configuration that the run was started with.

        Returns:
            Its text.

        Raises:
            RunError: it cannot be read.
        """
        try:
            return (self.directory / "config.yaml").read_text(encoding="utf-8")
        except OSError as error:
            raise RunError(
                f"{self.directory / 'config.yaml'} cannot be read ({error.strerror}); without it the run "
                "cannot be "
                f"continued or evaluated, so start a new one: framework train"
            ) from error

    def record(self) -> dict[str, Any]:
        """Reads run.json.

        Returns:
            Its content: id, name, versions and attempts.

        Raises:
            RunError: it cannot be read.
        """
        file = self.directory / "run.json"
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{file} cannot be read ({error}); restore the file, or start a new run: framework train"
            ) from error

    def overrides(self) -> list[str]:
        """Lists what all attempts together changed of config.yaml, the latest last.

        Returns:
            Arguments such as `trainer.max_steps=800`.
        """
        return [one for attempt in self.record()["attempts"] for one in attempt["overrides"]]

    @contextlib.contextmanager
    def attempt(self, overrides: Sequence[str] = ()) -> Generator["Attempt", None, None]:
        """Claims the run for this process, appends an attempt to run.json and writes the log to train.log.

        Args:
            overrides: what this attempt changes of the configuration.

        Yields:
            The attempt; set its `last_step` before the block ends.

        Raises:
            RunError: another live process holds the run, or the directory cannot be written.
        """
        with _claim(self.directory), _log_file(self.directory / "train.log"):
            record = self.record()
            for earlier in record["attempts"]:
                if earlier["exit"] == "running":  # nobody holds the run any more, so its process was killed
                    earlier["exit"] = "killed"
            record["attempts"].append(
                {
                    "start": _now(),
                    "end": None,
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "exit": "running",
                    "last_step": None,
                    "overrides": list(overrides),
                    "versions": versions(),
                }
            )
            _write_json(self.directory / "run.json", record)
            current = Attempt()
            number = len(record["attempts"])
            _LOG.info("attempt %d starts as process %d on %s", number, os.getpid(), socket.gethostname())
            try:
                yield current
            except BaseException as error:
                current.exit = (
                    "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
                )
                _LOG.error("attempt %d failed", number, exc_info=error)
                raise
            else:
                current.exit = "completed"
            finally:
                _LOG.info("attempt %d ends after step %s: %s", number, current.last_step, current.exit)
                record["attempts"][-1] |= {
                    "end": _now(),
                    "exit": current.exit,
                    "last_step": current.last_step,
                }
                _write_json(self.directory / "run.json", record)


class Attempt:
    """What is known of one attempt when it ends: why it ended and after how many steps."""

    def __init__(self) -> None:
        self.exit = "running"
        self.last_step: int | None = None


def create(runs: str | os.PathLike[str], name: str, config_text: str, overrides: Sequence[str]) -> Run:
    """Makes a run directory that no other process has.

    Args:
        runs: the directory of all runs.
        name: the name of the run's group, one directory level.
        config_text: the resolved configuration as YAML.
        overrides: the arguments of the command line.

    Returns:
        The run, with config.yaml, overrides.yaml and run.json written.

    Raises:
        RunError: the directory cannot be made or written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     create(folder, "a", "", []).directory == create(folder, "a", "", []).directory
        False
    """
    parent = Path(runs).absolute() / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = _unique(parent)
        _write(directory / "config.yaml", config_text)
        _write(directory / "overrides.yaml", "".join(f"- {json.dumps(one)}\n" for one in overrides) or "[]\n")
        record: dict[str, Any] = {
            "id": directory.name,
            "name": name,
            "created": _now(),
            "directory": str(Path.cwd()),
            "versions": versions(),
            "attempts": [],
        }
        _write_json(directory / "run.json", record)
    except OSError as error:
        raise RunError(
            f"the run directory cannot be made in {parent}: {error.strerror}; make it writable or choose "
            "another place: "
            f"paths.runs=DIR"
        ) from error
    return Run(directory)


def versions() -> dict[str, str]:
    """Lists what a run's result depends on, without importing any of it.

    Returns:
        The version of python and of each library; `not installed` for a library without one.

    Example:
        >>> versions()["python"].count(".")
        2
    """
    names = ("framework", "jax", "jaxlib", "optax", "numpy")
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


def _version(name: str) -> str:
    if name == "framework":  # a source checkout has a version without being installed
        return str(getattr(sys.modules.get("framework"), "__version__", "not installed"))
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _unique(parent: Path) -> Path:
    """Makes a new directory; making it fails if it exists, so two processes never get the same one."""
    while True:
        stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        directory = parent / f"{stamp}-{secrets.token_hex(3)}"
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            return directory


@contextlib.contextmanager
def _claim(directory: Path) -> Generator[None, None, None]:
    """Holds the run's lock, which the operating system frees when the process ends, however it ends."""
    file = directory / "run.lock"
    try:
        handle = file.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}; make the run directory writable") from error
    with handle:
        holder = _holder(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(_held(directory, holder)) from error
        if holder and holder[0] != socket.gethostname():
            # Another machine that shares the disk may not share the lock.
            raise RunError(_held(directory, holder) + f"; if that process has ended, remove {file}")
        handle.truncate(0)
        handle.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def _holder(handle: TextIO) -> tuple[str, int] | None:
    handle.seek(0)
    try:
        content = json.loads(handle.read())
        return str(content["host"]), int(content["pid"])
    except (ValueError, KeyError, TypeError):
        return None


def _held(directory: Path, holder: tuple[str, int] | None) -> str:
    who = f"process {holder[1]} on {holder[0]}" if holder else "another process"
    return (
        f"the run {directory} is being trained by {who}; stop that process first, or start a new run: framework train"
    )


@contextlib.contextmanager
def _log_file(file: Path) -> Generator[None, None, None]:
    """Writes the framework's messages, and the warnings of all libraries, to a file while the block runs."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours, root = logging.getLogger("framework"), logging.getLogger()
    before = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(before)
        root.removeHandler(handler)
        handler.close()


def _not_a_run(directory: Path) -> str:
    if not directory.is_dir():
        problem = f"there is no directory {directory}"
    else:
        problem = f"{directory} is not a run: it has no run.json"
        inside = sorted(directory.glob("**/run.json"), key=lambda one: one.stat().st_mtime)
        if inside:
            return f"{problem}; the newest run inside is run={inside[-1].parent}"
    beside = sorted(directory.parent.glob("*/run.json"), key=lambda one: one.stat().st_mtime)
    hint = (
        f"the newest run beside it is run={beside[-1].parent}"
        if beside
        else "train prints the directory as its last lines"
    )
    return f"{problem}; {hint}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _write(file: Path, text: str) -> None:
    """Writes a file whole or not at all, also when the machine fails in between."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(file)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    _write(file, json.dumps(content, indent=2) + "\n")
