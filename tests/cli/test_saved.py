from pathlib import Path

import pytest

from framework.cli import runs
from framework.cli.saved import saved_config
from framework.errors import ConfigError

CONFIG = """
name: '007'
seed: 3
data: {_target_: their_module.Data}
model: {_target_: their_module.Model, width: 3}
task: {_target_: their_module.Task}
optimizer: {_target_: optax.sgd, learning_rate: 1.0e-05}
trainer: {max_steps: 5}
"""


@pytest.fixture
def run(workspace: Path) -> runs.Run:
    return runs.create(workspace / "runs", "a", CONFIG, [])


def test_a_saved_configuration_is_the_one_that_was_used(run: runs.Run) -> None:
    config = saved_config(run, [])
    assert (config["name"], config["seed"], config["optimizer"]["learning_rate"]) == ("007", 3, 1e-5)
    assert config["trainer"] == {"max_steps": 5, "log_every": 50, "evaluate_every": 200, "prefetch": 2}


def test_changes_of_all_attempts_are_applied_in_order(run: runs.Run) -> None:
    with run.attempt(["trainer.max_steps=8", "checkpoint.keep=1"]):
        pass
    config = saved_config(run, ["trainer.max_steps=9", "monitor.progress=off"])
    assert config["trainer"]["max_steps"] == 9 and config["checkpoint"]["keep"] == 1
    assert config["monitor"]["progress"] == "off"
    assert run.config_text() == CONFIG


def test_all_refused_overrides_are_listed(run: runs.Run) -> None:
    with pytest.raises(ConfigError) as caught:
        saved_config(run, ["seed=1", "trainer.max_steps=9", "model.width=4", "+trainer.x=1", "~monitor"])
    assert str(caught.value).startswith(
        "command line: a run keeps seed=1, model.width=4, +trainer.x=1, ~monitor as it was; resume may "
        "change only trainer.*, monitor.*, checkpoint.*."
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "trainer.max_stepz=3",
            "command line: there is no key 'trainer.max_stepz'; did you mean",
        ),
        ("trainer.max_steps=abc", "command line: trainer.max_steps must be a whole number, not 'abc'"),
        ("trainer.max_steps=0", "command line: trainer.max_steps must be at least 1, not 0"),
        ("trainer=3", "command line: trainer must be a node with keys of its own, not 3"),
    ],
)
def test_wrong_overrides(override: str, message: str, run: runs.Run) -> None:
    with pytest.raises(ConfigError) as caught:
        saved_config(run, [override])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer:\n  max_stepz: 3\n", "runs/a/.*/config.yaml:2: there is no key 'trainer.max_stepz'"),
        ("trainer:\n  max_steps: abc\n", "runs/a/.*/config.yaml:2: trainer.max_steps must be a whole number"),
        ("trainer: [\n", "runs/a/.*/config.yaml:2: this is not valid YAML"),
        ("seed: 1\n", "trainer.max_steps has no value yet"),
        (
            CONFIG.replace("width", "widht"),
            "runs/a/.*/config.yaml:5: their_module.Model takes no keyword 'widht'",
        ),
    ],
)
def test_an_edited_configuration_is_checked_like_a_new_one(text: str, message: str, run: runs.Run) -> None:
    (run.directory / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        saved_config(run, [])
