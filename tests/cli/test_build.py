"""Whole runs of the shipped experiments, a few steps each, as a user starts them."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import framework

ROOT = str(Path(framework.__file__).parent.parent)


def _framework(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": ROOT,
        "JAX_PLATFORMS": "cpu",
        "FRAMEWORK_CACHE": str(folder / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "framework", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _run_directory(done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(next(one for one in done.stdout.splitlines() if one.startswith("run directory: "))[15:])


@pytest.mark.parametrize("experiment", ["digits_mlp", "digits_cnn", "char_transformer"])
def test_an_experiment_runs_resumes_and_is_evaluated(experiment: str, tmp_path: Path) -> None:
    small = [
        "model.depth=1",
        "model.width=16",
        "data.batch_size=2",
        "data.max_bytes=1000000",
        "data.holdout_one_in=2",
        "task.sample_length=4",
    ]
    fewer = small if experiment == "char_transformer" else []
    done = _framework(["train", f"experiment={experiment}", "debug=fast", *fewer], tmp_path)
    run = _run_directory(done)
    assert "s from start to first step" in done.stdout and "step 3: " in done.stdout
    assert run.parent == tmp_path / "runs" / "debug"
    assert {"config.yaml", "overrides.yaml", "run.json", "train.log", "metrics.jsonl", "checkpoints"} <= {
        one.name for one in run.iterdir()
    }
    again = _framework(["resume", f"run={run}", "trainer.max_steps=5", "monitor.tensorboard=true"], tmp_path)
    assert _run_directory(again) == run and "step 5: " in again.stdout
    assert {one.name for one in (run / "tensorboard").iterdir()} >= {"train", "eval"}
    attempts = json.loads((run / "run.json").read_text())["attempts"]
    assert [(one["exit"], one["last_step"]) for one in attempts] == [("completed", 3), ("completed", 5)]
    measured = _framework(["evaluate", f"run={run}"], tmp_path)
    assert measured.returncode == 0, measured.stderr
    line = json.loads(measured.stdout.splitlines()[-1])
    assert line["step"] == 5 and math.isfinite(line["eval"]["loss"])
    assert ("test" in line) == experiment.startswith("digits")
    assert any((tmp_path / "cache").iterdir())


@pytest.fixture
def own_model(tmp_path: Path) -> list[str]:
    """A model beside the user's YAML; the arguments that train it."""
    (tmp_path / "their_module.py").write_text(
        "import jax.numpy as jnp\n"
        "import framework as fw\n\n\n"
        "class Small(fw.Module):\n"
        "    weight: fw.Param\n\n"
        "    def __init__(self, width: int, rate: float = 0.5):\n"
        "        assert type(rate) is float\n"
        "        self.weight = jnp.zeros((width, 10))\n\n"
        "    def __call__(self, x):\n"
        "        return x @ self.weight\n"
    )
    (tmp_path / "groups" / "model").mkdir(parents=True)
    (tmp_path / "groups" / "model" / "small.yaml").write_text("_target_: their_module.Small\nwidth: 64\nrate: 1\n")
    return ["train", "--config-dir=groups", "model=small", "debug=fast"]


def test_a_model_of_the_users_own(own_model: list[str], tmp_path: Path) -> None:
    keywords = "init_value: 1, end_value: 0, transition_steps: 3"
    schedule = f"optimizer.schedule={{_target_: optax.linear_schedule, {keywords}}}"
    done = _framework([*own_model, schedule, "-m", "seed=1,2"], tmp_path)
    _run_directory(done)
    assert len(list((tmp_path / "runs" / "debug").iterdir())) == 2


def test_a_schedule_that_cannot_be(own_model: list[str], tmp_path: Path) -> None:
    keywords = "init_value: 0, peak_value: 1, warmup_steps: 50, decay_steps: 3"
    schedule = f"optimizer.schedule={{_target_: optax.warmup_cosine_decay_schedule, {keywords}}}"
    done = _framework([*own_model, schedule], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ConfigError: optimizer.schedule: optax.warmup_cosine_decay_schedule refuses")
    assert done.stderr.count("\n") == 1


def test_a_dangerous_target_is_refused(own_model: list[str], tmp_path: Path) -> None:
    done = _framework([*own_model, "optimizer._target_=os.system"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ConfigError: optimizer cannot be built: Target 'os.system' is blocklisted")


def test_interrupting_a_run_keeps_it(own_model: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": ROOT, "JAX_PLATFORMS": "cpu"}
    endless = [*own_model, "trainer.max_steps=1000000", "trainer.evaluate_every=null", "monitor.progress=off"]
    # A shell has its background jobs ignore the signal, and so would their children.
    heed = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{heed}; runpy.run_module('framework', run_name='__main__')", *endless],
        cwd=tmp_path,
        env={**environment, "FRAMEWORK_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("runs/debug/*/checkpoints/*/manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    finally:
        child.kill()
    (run,) = (tmp_path / "runs" / "debug").iterdir()
    assert child.returncode == 130
    # Other libraries may add a line of their own while the interpreter shuts down.
    assert f"interrupted; continue this run with: framework resume run={run}" in errors.splitlines()
    assert "Traceback" not in errors
    (attempt,) = json.loads((run / "run.json").read_text())["attempts"]
    assert attempt["exit"] == "interrupted"
    assert attempt["last_step"] >= 3
