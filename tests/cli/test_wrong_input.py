"""What can be wrong with a run: each mistake is one paragraph with the remedy and exit code 2, and no checkpoint is lost."""

import re
import sys
from pathlib import Path

import pytest

from framework.cli.main import main

MODULE = """
import jax.numpy as jnp
import numpy as np
import framework as fw

def arrays(size: int, batch_size: int = 8, file: str | None = None, label: int = 1):
    images = np.ones((size, 64), np.float32) if file is None else np.load(file)
    rows = {"image": images, "label": np.full(len(images), label, np.int32)}
    train = fw.data.ArrayBatches(rows, batch_size, shuffle=True, name="theirs")
    return fw.data.Splits(train=train, eval=fw.data.ArrayBatches(rows, 8, shuffle=False, epochs=1, remainder="pad"))

class Diverging(fw.Classification):
    def loss(self, model, batch):
        step = jnp.zeros((), int) if self.optimizer is None else self.optimizer.step
        return super().loss(model, batch) * jnp.where(step >= 5, jnp.nan, 1.0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's current directory, with a module of their own."""
    (tmp_path / "wrong_input_module.py").write_text(MODULE)
    (tmp_path / "groups" / "data").mkdir(parents=True)
    (tmp_path / "groups" / "data" / "theirs.yaml").write_text("_target_: wrong_input_module.arrays\nsize: 16\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def theirs(**keywords: object) -> list[str]:
    return ["--config-dir=groups", "data=theirs", *(f"data.{name}={value}" for name, value in keywords.items())]


WRONG: dict[str, tuple[list[str], str]] = {
    "unknown key": (
        ["optimizer.learning_rat=1"],
        r"ConfigError: .*optimizer.learning_rat.*did you mean.*learning_rate",
    ),
    "wrong type": (["trainer.max_steps=many"], r"ConfigError: .*trainer.max_steps.*many.*"),
    "missing folder of data": (
        ["experiment=char_transformer", "data.root=/nowhere/at/all"],
        r"DataError: there is no folder `/nowhere/at/all` to read Python files from. Pass one that exists",
    ),
    "missing file of data": (
        theirs(size=1, file="absent.npy"),
        r"DataError: data cannot be built: wrong_input_module.arrays failed to use a file: .*No such file.*absent.npy.*"
        r"Correct the path in the node 'data'",
    ),
    "label out of range": (
        [*theirs(size=16, label=10)],
        r'DataError: "label" in batch 0 is 10 in row 0, but there are 10 classes, 0 to 9.*Set `num_classes`',
    ),
    "empty dataset": (theirs(size=0), r"DataError: `theirs` has no examples \(its size is 0\).*"),
    "batch larger than the dataset": (
        ["data.batch_size=5000"],
        r"DataError: a batch of `digits/train` has 5000 rows, but there are only \d+ examples.*Write `batch_size=\d+` or",
    ),
    "run directory that cannot be written": (
        ["paths.runs=wrong_input_module.py/runs"],
        r"RunError: .*wrong_input_module.py",
    ),
    "loss that is not finite": (
        ["task._target_=wrong_input_module.Diverging"],
        r"TrainingError: the loss became NaN or infinite at or shortly before step 6; training was stopped, and the "
        r"checkpoint of step 4 is intact.*Try a lower `optimizer.learning_rate`",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_paragraph_and_exit_code_2(
    mistake: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = WRONG[mistake]
    every_step = ["trainer.max_steps=8", "trainer.log_every=1", "checkpoint.every=2", "monitor.progress=off"]
    assert main(["train", *every_step, *arguments]) == 2
    written = capsys.readouterr().err
    assert "Traceback" not in written and written.count("\n") == 1
    assert re.match(message, written), written


def test_checkpoints_from_before_the_fault_can_be_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*WRONG["loss that is not finite"][0], "trainer.log_every=1", "checkpoint.every=2"]
    assert main(["train", "trainer.max_steps=8", *arguments]) == 2
    (run,) = (folder / "runs").rglob("run.json")
    assert main(["evaluate", f"run={run.parent}"]) == 0
    assert f"step 4 of {run.parent}" in capsys.readouterr().out
    assert main(["resume", f"run={run.parent}", "trainer.max_steps=5"]) == 0
