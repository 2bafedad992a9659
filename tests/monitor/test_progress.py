"""The display: plain lines, the bar, rate and time left by a clock that the tests move."""

import io
import math
import os
import pty
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import ConfigError, TrainingError
from framework.monitor import Progress
from framework.monitor.rate import Rate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def visible(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@given(
    compile_seconds=st.floats(0, 1e4),
    step_seconds=st.floats(1e-3, 100),
    steps=st.integers(2, 50),
    start=st.integers(0, 1000),
)
def test_property_rate_and_time_left_exclude_the_first_step(
    compile_seconds: float, step_seconds: float, steps: int, start: int
) -> None:
    rate = Rate(start + 100)
    for number in range(1, steps + 1):
        rate.update(start + number, compile_seconds + (number - 1) * step_seconds)
    assert rate.steps_per_second == pytest.approx(1 / step_seconds, rel=1e-6)
    assert rate.seconds_left == pytest.approx((100 - steps) * step_seconds, rel=1e-6)


def test_rate_is_unknown_after_one_step() -> None:
    rate = Rate(10)
    assert math.isnan(rate.steps_per_second) and math.isnan(rate.seconds_left)
    rate.update(1, 5.0)
    assert math.isnan(rate.steps_per_second) and math.isnan(rate.seconds_left)
    rate.update(20, 6.0)
    assert rate.seconds_left == 0.0


def test_plain_lines_every_few_seconds_and_for_each_values() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress(1000, start=400, mode="plain", stream=stream, interval=5.0, clock=clock)
    clock.now += 60.0  # the compiler
    progress.update(401)
    for step in range(402, 426):
        clock.now += 0.5
        progress.update(step, {"loss": 1.0 / step, "eval/accuracy": 0.5} if step == 406 else None)
    progress.close()
    assert stream.getvalue().splitlines() == [
        "step 401/1000 (40 %)",
        "step 406/1000 (40 %), 2 steps/s, 0:04:57 left, loss 0.002463, eval/accuracy 0.5",
        "step 416/1000 (41 %), 2 steps/s, 0:04:52 left",
    ]


def test_auto_is_plain_without_a_terminal_and_a_bar_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    outputs = []
    for stream in (io.StringIO(), Terminal()):
        progress = Progress(10, stream=stream)
        progress.update(1, {"loss": 0.5})
        progress.close()
        outputs.append(stream.getvalue())
    assert outputs[0] == "step 1/10 (10 %), loss 0.5\n"
    assert "\x1b[" in outputs[1] and "loss 0.5" in visible(outputs[1])
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    Progress(10, stream=dumb).close()
    assert "\x1b" not in dumb.getvalue()


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(4)
    progress.update(4, {"loss": 0.125})
    progress.close()
    assert capsys.readouterr() == ("", "step 4/4 (100 %), loss 0.125\n")


def test_bar_shows_step_rate_time_left_and_newest_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    clock, stream = Clock(), Terminal()
    progress = Progress(100, mode="rich", stream=stream, clock=clock)
    assert "compiling the first step" in visible(stream.getvalue())
    clock.now += 30
    progress.update(1, {"loss": 0.5, "[red]odd": 1.0})
    clock.now += 2
    progress.update(5, {"loss": 0.25})
    progress.message("evaluated [not markup]")
    progress.close()
    progress.close()
    shown = visible(stream.getvalue())
    assert "evaluated [not markup]" in shown
    last = [line for line in re.split(r"[\r\n]", shown) if "step 5/100" in line][-1]
    assert "2 steps/s, 0:00:47 left, loss 0.25, [red]odd 1" in last
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


def test_bar_is_drawn_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(), Terminal()
    progress = Progress(10_000, mode="rich", stream=stream, clock=clock)
    for step in range(1, 10_001):
        clock.now += 0.0005  # five seconds in all
        progress.update(step)
    drawn = visible(stream.getvalue()).count("step ") - visible(stream.getvalue()).count("first step")
    assert 40 <= drawn <= 52
    progress.close()
    assert "step 10000/10000" in visible(stream.getvalue())


def test_off_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(10, mode="off")
    progress.update(1, {"loss": 1.0})
    progress.message("hello")
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_program_without_a_console_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    progress = Progress(10)
    progress.update(1, {"loss": 1.0})
    progress.close()


def test_unknown_mode_lists_the_modes() -> None:
    mode: Any = "fancy"
    with pytest.raises(ConfigError, match=r"mode 'fancy'.*monitor.progress=auto, rich, plain or off"):
        Progress(10, mode=mode)


def test_update_after_close_raises_but_a_message_is_shown() -> None:
    stream = io.StringIO()
    progress = Progress(10, mode="plain", stream=stream)
    progress.close()
    with pytest.raises(TrainingError, match=r"step 3 after close\(\)"):
        progress.update(3)
    progress.message("done")
    assert stream.getvalue() == "done\n"


@pytest.mark.parametrize("mode", ["plain", "rich"])
def test_closed_pipe_does_not_stop_the_run(mode: Any) -> None:
    reader, writer = os.pipe()
    with open(writer, "w", buffering=1) as stream:
        clock = Clock()
        progress = Progress(10, mode=mode, stream=stream, clock=clock)
        os.close(reader)
        for step in range(1, 4):
            clock.now += 10
            progress.update(step, {"loss": 1.0})
        progress.message("unheard")
        progress.close()
        # The text that found no reader is still buffered; closing the file must not fail over it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_auto_draws_a_bar_on_a_real_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    master, slave = pty.openpty()
    with open(slave, "w") as stream:
        progress = Progress(3, stream=stream)
        progress.update(3, {"loss": 0.5})
        progress.close()
        shown = os.read(master, 65536).decode()
    os.close(master)
    assert "step 3/3" in visible(shown) and "loss 0.5" in visible(shown)
