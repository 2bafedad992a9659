"""The commands around the training itself, which is replaced by one that needs no JAX."""

import dataclasses
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from framework import cli
from framework.cli.main import main
from framework.cli.runs import Attempt, Run
from framework.errors import TrainingError

Write = Callable[[Path, dict[str, str]], None]
THEIRS = ["train", "--config-dir=groups", "experiment=theirs"]


@dataclasses.dataclass
class Training:
    """Stands in for build.py: remembers what it was given, and can be told to fail."""

    configs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    error: BaseException | None = None

    def train(self, config: dict[str, Any], run: Run, attempt: Attempt) -> types.SimpleNamespace:
        self.configs.append(config)
        attempt.last_step = steps = config["trainer"]["max_steps"]
        if self.error is not None:
            raise self.error
        return types.SimpleNamespace(
            metrics={"loss": 0.25}, test={"loss": 0.5}, first_step=0, last_step=steps, first_step_at=2e10
        )

    def evaluate(self, config: dict[str, Any], run: Run) -> tuple[int, dict[str, dict[str, float]]]:
        return 5, {"eval": {"loss": 0.5, "accuracy": 0.75}, "test": {"loss": 0.25}}


@pytest.fixture
def training(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    replaced: Any = Training()
    monkeypatch.setitem(sys.modules, "framework.cli.build", replaced)
    monkeypatch.setattr(cli, "build", replaced, raising=False)
    return replaced


def _runs(workspace: Path) -> list[Path]:
    return sorted(file.parent for file in workspace.glob("runs/**/run.json"))


def test_a_run_has_one_directory_and_nothing_beside_it(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {one.name for one in workspace.iterdir()}
    assert main([*THEIRS, "trainer.max_steps=7", "model.limit=4"]) == 0
    assert {one.name for one in workspace.iterdir()} - before == {"runs"}
    (run,) = _runs(workspace)
    assert run.parent == workspace / "runs" / "theirs" and [run] == list(run.parent.iterdir())
    saved = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    assert saved == training.configs[0] and saved["trainer"]["max_steps"] == 7 and saved["model"]["limit"] == 4
    assert OmegaConf.load(run / "overrides.yaml") == [
        "experiment=theirs",
        "trainer.max_steps=7",
        "model.limit=4",
    ]
    (attempt,) = json.loads((run / "run.json").read_text())["attempts"]
    assert (attempt["exit"], attempt["last_step"]) == ("completed", 7)
    lines = capsys.readouterr().out.splitlines()
    assert "s from start to first step" in lines[1]
    assert lines[2:] == [
        "step 7: loss 0.25",
        "test: loss 0.5",
        f"run directory: {run}",
        f"curves: tensorboard --logdir {run}/tensorboard",
    ]


@pytest.mark.parametrize(
    ("argument", "path", "value"),
    [
        ("optimizer.learning_rate=1", "optimizer.learning_rate", 1.0),
        ("optimizer.learning_rate=1e-05", "optimizer.learning_rate", 1e-5),
        ("optimizer.learning_rate=.001", "optimizer.learning_rate", 1e-3),
        ("optimizer.clip_norm=2", "optimizer.clip_norm", 2.0),
        ("optimizer.clip_norm=null", "optimizer.clip_norm", None),
        ("model.rate=1", "model.rate", 1.0),
        ("model.label=007", "model.label", "007"),
        ("model.label=1e10", "model.label", "1e10"),
        ("model.label=true", "model.label", "true"),
        ("name=1e10", "name", "1e10"),
        ("name=007", "name", "007"),
        ("name=true", "name", "true"),
        ("monitor.progress=off", "monitor.progress", "off"),
        ("paths.runs=runs/2024", "paths.runs", "runs/2024"),
        ("trainer.evaluate_every=null", "trainer.evaluate_every", None),
        ("model.sizes=[1,2]", "model.sizes", [1, 2]),
    ],
)
def test_values_have_their_declared_type(
    argument: str, path: str, value: object, training: Training, workspace: Path
) -> None:
    assert main([*THEIRS, argument]) == 0
    (run,) = _runs(workspace)
    for config in (OmegaConf.create(training.configs[0]), OmegaConf.load(run / "config.yaml")):
        found = OmegaConf.select(config, path)
        found = OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
        assert found == value and type(found) is type(value)


def test_yaml_values_have_their_declared_type(training: Training, workspace: Path, write: Write) -> None:
    text = (
        "# @package _global_\nname: 007\nmonitor:\n  progress: off\nmodel:\n  label: 1e10\n  rate: 1\n"
        "optimizer:\n  learning_rate: 1\n  eps: 1e-05\n"
    )
    write(workspace, {"groups/debug/odd.yaml": text})
    assert main([*THEIRS, "debug=odd"]) == 0
    (config,) = training.configs
    assert (config["name"], config["monitor"]["progress"], config["model"]["label"]) == ("007", "off", "1e10")
    values = [config["model"]["rate"], config["optimizer"]["learning_rate"], config["optimizer"]["eps"]]
    assert values == [1.0, 1.0, 1e-5] and all(type(one) is float for one in values)


def test_a_keyword_that_no_yaml_lists_needs_no_plus(training: Training, workspace: Path) -> None:
    assert main([*THEIRS, "model.limit=4", "optimizer.b1=0.8", "+model.mode=b"]) == 0
    (config,) = training.configs
    assert config["model"]["limit"] == 4 and config["model"]["mode"] == "b" and config["optimizer"]["b1"] == 0.8


def test_a_target_with_any_keywords_takes_any(training: Training, workspace: Path) -> None:
    assert main([*THEIRS, "model._target_=their_module.accepts_all", "model.whatever={a: [1, b]}"]) == 0
    assert training.configs[0]["model"]["whatever"] == {"a": [1, "b"]}


def test_a_sweep_is_one_run_for_each_value(training: Training, workspace: Path) -> None:
    assert main([*THEIRS, "-m", "seed=1,2,3", "name=1e1,b"]) == 0
    assert [(one["seed"], one["name"]) for one in training.configs] == [
        (seed, name) for seed in (1, 2, 3) for name in ("1e1", "b")
    ]
    assert len(_runs(workspace)) == 6
    assert len(list(workspace.glob("runs/sweeps/*/multirun.yaml"))) == 1


def test_a_failed_run_does_not_stop_a_sweep(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*THEIRS, "-m", "trainer.max_steps=0,5"]) == 2
    assert len(_runs(workspace)) == 1 and "trainer.max_steps must be at least 1" in capsys.readouterr().err


def test_an_error_of_training_is_one_paragraph(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training.error = TrainingError("the loss\n  became NaN")
    assert main(THEIRS) == 2
    assert capsys.readouterr().err == "TrainingError: the loss became NaN\n"
    (run,) = _runs(workspace)
    assert Run(run).record()["attempts"][0]["exit"] == "TrainingError: the loss\n  became NaN"


def test_a_fault_keeps_its_traceback(training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training.error = ZeroDivisionError("here")
    assert main(THEIRS) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupting_says_how_to_go_on(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training.error = KeyboardInterrupt()
    assert main(THEIRS) == 130
    (run,) = _runs(workspace)
    assert capsys.readouterr().err.strip() == f"interrupted; continue this run with: framework resume run={run}"
    training.error = None
    assert main(["resume", f"run={run}", "trainer.max_steps=9"]) == 0
    assert _runs(workspace) == [run]
    assert [one["exit"] for one in Run(run).record()["attempts"]] == ["interrupted", "completed"]
    assert [one["trainer"]["max_steps"] for one in training.configs] == [5, 9]
    assert main(["resume", f"run={run}"]) == 0 and training.configs[-1]["trainer"]["max_steps"] == 9


def test_resume_refuses_other_changes(training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(THEIRS) == 0
    (run,) = _runs(workspace)
    assert main(["resume", f"run={run}", "model.width=4", "seed=2"]) == 2
    assert "a run keeps model.width=4, seed=2 as it was" in capsys.readouterr().err
    assert len(training.configs) == 1 and len(Run(run).record()["attempts"]) == 1


def test_evaluate_prints_a_table_and_a_line_for_programs(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(THEIRS) == 0
    (run,) = _runs(workspace)
    capsys.readouterr()
    assert main(["evaluate", f"run={run}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["split", "accuracy", "loss"],
        ["eval", "0.75", "0.5"],
        ["test", "0.25"],
    ]
    printed = json.loads(lines[4])
    assert printed == {
        "run": str(run),
        "step": 5,
        "eval": {"loss": 0.5, "accuracy": 0.75},
        "test": {"loss": 0.25},
    }
    assert main(["evaluate", f"run={run}", "seed=1"]) == 2


@pytest.mark.parametrize("where", ["file", "parent"])
def test_a_place_that_cannot_be_written(
    where: str, training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "file").write_text("")
    assert main([*THEIRS, f"paths.runs={'file' if where == 'file' else 'file/runs'}"]) == 2
    assert capsys.readouterr().err.startswith("RunError: the run directory cannot be made in ")


def test_cfg_prints_what_a_run_would_use(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*THEIRS, "--cfg", "job", "name=1e10", "optimizer.learning_rate=1", "data.size=${seed}"]) == 0
    printed = OmegaConf.create(capsys.readouterr().out)
    assert printed.name == "1e10" and type(printed.optimizer.learning_rate) is float
    assert OmegaConf.to_container(printed.data)["size"] == "${seed}"  # pyright: ignore
    assert main([*THEIRS, "--cfg", "job", "--resolve", "-p", "data", "data.size=${seed}"]) == 0
    assert capsys.readouterr().out == "# @package data\n_target_: their_module.Data\nsize: 0\n"
    assert main([*THEIRS, "--cfg", "job", "-p", "dta"]) == 2
    assert "there is no node 'dta'; did you mean 'data'?" in capsys.readouterr().err
    assert not _runs(workspace) and not training.configs


def test_cfg_shows_a_wrong_configuration_and_refuses_it(
    training: Training, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*THEIRS, "--cfg", "job", "model.widht=3"]) == 2
    printed = capsys.readouterr()
    assert "widht: 3" in printed.out and "did you mean 'model.width'?" in printed.err


def _command(arguments: list[str], workspace: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(cli.__file__).parent.parent.parent)
    program = (
        "import sys; from framework.cli.main import main; code = main(sys.argv[1:]);"
        "heavy = {'jax', 'optax', 'numpy', 'framework.module', 'their_module'} & set(sys.modules);"
        "print('LOADED', sorted(heavy), file=sys.stderr); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--help"], 0, "usage: framework COMMAND"),
        ([], 0, "usage: framework COMMAND"),
        (["train", "--help"], 0, "experiment: char_transformer, digits_cnn, digits_mlp"),
        (["train", "--info", "defaults"], 0, "data/digits_flat"),
        (["train", "--cfg", "hydra"], 0, "output_subdir: null"),
        ([*THEIRS, "--cfg", "job", "--resolve"], 0, "_target_: their_module.Model"),
        ([*THEIRS, "model.widht=3"], 2, "did you mean 'model.width'?"),
        (["train", "trainer.max_stepz=3"], 2, "did you mean 'trainer.max_steps'?"),
        (["resume", "run=nope"], 2, "there is no directory"),
        (["evaluate", "--help"], 0, "framework evaluate run=DIR"),
        (["-sc", "install=bash"], 0, "hydra_bash_completion"),
    ],
)
def test_no_jax_before_a_configuration_is_right(arguments: list[str], code: int, text: str, workspace: Path) -> None:
    done = _command(arguments, workspace)
    assert done.returncode == code and text in done.stdout + done.stderr
    assert "LOADED []" in done.stderr and "Traceback" not in done.stderr
    assert not (workspace / "runs").exists()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("framework tr", "train"),
        ("framework train experi", "experiment="),
        ("framework train experiment=digits_c", "experiment=digits_cnn"),
        ("framework train trainer.max", "trainer.max_steps="),
    ],
)
def test_the_shell_completes(line: str, word: str, workspace: Path) -> None:
    done = _command(["-sc", "query=bash"], workspace, COMP_LINE=line)
    assert word in done.stdout.split()


def test_python_m_framework(workspace: Path) -> None:
    root = str(Path(cli.__file__).parent.parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "framework", "trian"],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr == "ConfigError: there is no command 'trian'; did you mean 'train'?\n"
