"""Reads TensorBoard files back as TensorBoard does, with each of its two loaders."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Curve = list[tuple[int, float]]


@pytest.fixture
def python_curve() -> Callable[[Path, str, str], Curve]:
    """Reads a curve with the Python loader; the reservoir is made too large to drop points."""
    from tensorboard.backend.event_processing import plugin_event_multiplexer

    def read(directory: Path, run: str, tag: str) -> Curve:
        multiplexer = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
        multiplexer.AddRunsFromDirectory(str(directory))
        multiplexer.Reload()
        return [(event.step, float(event.tensor_proto.float_val[0])) for event in multiplexer.Tensors(run, tag)]

    return read


@pytest.fixture
def event_accumulator_curve() -> Callable[[Path, str], Curve]:
    """Reads a curve of one sub-run with the loader that scripts use."""
    from tensorboard.backend.event_processing import event_accumulator

    def read(directory: Path, tag: str) -> Curve:
        accumulator = event_accumulator.EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        return [(event.step, event.value) for event in accumulator.Scalars(tag)]

    return read


class Server:
    """TensorBoard with its default loader, the Rust data server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, route: str, **query: str) -> Any:
        url = f"{self.address}/data/{route}"
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}" if query else url) as answer:
            return json.loads(answer.read().decode())

    def settled(self, read: Callable[[], Any]) -> Any:
        """Asks until two answers, a reload apart, agree: the files are loaded in the background."""
        last: Any = None
        for _ in range(40):
            with contextlib.suppress(urllib.error.HTTPError):
                answer = read()
                if answer and answer == last:
                    return answer
                last = answer
            time.sleep(0.5)
        raise AssertionError(f"TensorBoard's answer did not settle: {last}")

    def curve(self, run: str, tag: str) -> Curve:
        points = self.settled(lambda: self.get("plugin/scalars/scalars", run=run, tag=tag))
        return [(int(step), value) for _, step, value in points]


@pytest.fixture
def serve() -> Callable[[Path], contextlib.AbstractContextManager[Server]]:
    """Starts TensorBoard on a folder."""

    @contextlib.contextmanager
    def start(directory: Path) -> Iterator[Server]:
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--load_fast=true"]
        command += [
            "--port=0",
            "--host=127.0.0.1",
            "--reload_interval=1",
            "--samples_per_plugin=scalars=100000",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield Server(found[0])
                    break
            else:
                raise AssertionError(f"TensorBoard did not start: {''.join(said)}")
        finally:
            process.terminate()
            process.communicate()

    return start
