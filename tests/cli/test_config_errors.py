"""Every mistake in a configuration is one paragraph with its place, exit code 2, and no run directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from framework.cli.main import main

Write = Callable[[Path, dict[str, str]], None]
OPTIONS = ["--config-dir=groups", "experiment=theirs"]

COMMAND_LINE = [
    ("trainer.max_stepz=3", "there is no key 'trainer.max_stepz'; did you mean 'trainer.max_steps'?"),
    ("max_steps=3", "there is no key 'max_steps'; did you mean 'trainer.max_steps'?"),
    ("lr=3", "there is no key 'lr'; did you mean 'optimizer.learning_rate'?"),
    ("modle=theirs", "there is no key 'modle'; did you mean 'model'?"),
    (
        "model={_target_: their_module.Base, sizes: 2}",
        "model={...} is merged into the chosen option of the group 'model', which has no key 'sizes'; to use another "
        "target, write the node into a file DIR/model/NAME.yaml and choose it with --config-dir=DIR model=NAME",
    ),
    ("hydra.runn=3", "there is no key 'hydra.runn'; did you mean 'hydra.run'?"),
    ("+trainer.foo=3", "there is no key 'trainer.foo'; it can be: trainer.evaluate_every"),
    ("+extra.key=3", "there is no key 'extra'; it can be: checkpoint"),
    ("~foo", "there is no key 'foo' to remove; it can be: checkpoint"),
    ("trainer.max_steps=abc", "trainer.max_steps must be a whole number, not 'abc'"),
    ("trainer.max_steps=1e3", "trainer.max_steps must be a whole number, not 1000.0; write 1000"),
    (
        "trainer.max_steps=",
        "trainer.max_steps must be a whole number, not ''; there is nothing after the '='",
    ),
    ("trainer.max_steps=null", "trainer.max_steps must be a whole number, not null"),
    ("trainer.max_steps=0", "trainer.max_steps must be at least 1, not 0"),
    ("trainer.max_steps=???", "trainer.max_steps has no value yet; write trainer.max_steps=VALUE"),
    ("trainer.max_steps=${foo}", "trainer.max_steps cannot be resolved: Interpolation key 'foo' not found"),
    ("~trainer.max_steps", "'~trainer.max_steps' cannot be removed, since every configuration has it"),
    ("monitor.progress=ritch", "monitor.progress='ritch' is unknown; did you mean 'rich'?"),
    ("monitor.records=maybe", "monitor.records must be true or false, not 'maybe'"),
    ("seed=-1", "seed must be at least 0, not -1"),
    ("seed=1,2", "seed=1,2 is several values; add -m for one run with each"),
    ("seed", "'seed' cannot be read: missing EQUAL"),
    ("name=[", "'name=[' cannot be read: no viable alternative"),
    ("name='a b'", "name='a b' cannot name a directory that needs no quoting"),
    (
        "experiment=thiers",
        "the group 'experiment' has no option 'thiers'; did you mean 'theirs'? It can be: char_transformer",
    ),
    (
        "trainer=3",
        "trainer=3 names no option of the group 'trainer'; one value inside it is written trainer.KEY=VALUE",
    ),
    ("model=null", "model=null names no option of the group 'model'"),
    ("~model", "model says nothing to build; it needs the key _target_"),
    (
        "model.widht=3",
        "their_module.Model takes no keyword 'widht' (model.widht); did you mean 'model.width'?",
    ),
    (
        "+model.widht=3",
        "their_module.Model takes no keyword 'widht' (model.widht); did you mean 'model.width'?",
    ),
    ("model.width=a", "model.width must be int for their_module.Model, not 'a' (str)"),
    ("model.width=3.5", "model.width must be int for their_module.Model, not 3.5 (float)"),
    ("model.mode=c", "model.mode must be Literal['a', 'b'] for their_module.Model, not 'c' (str)"),
    ("model.sizes=[1,a]", "model.sizes must be list[int] for their_module.Model, not [1, 'a'] (list)"),
    (
        "model.rngs=3",
        "model.rngs is given by the framework when it builds their_module.Model; remove this key",
    ),
    (
        "data.shufle=true",
        "their_module.Data takes no keyword 'shufle' (data.shufle); did you mean 'data.shuffle'?",
    ),
    ("data.size=true", "data.size must be int for their_module.Data, not True (bool)"),
    ("task.classes=3", "their_module.Task takes no keyword 'classes' (task.classes)"),
    ("task.model=3", "task.model is given by the framework"),
    (
        "optimizer.lr=3",
        "optax.adamw takes no keyword 'lr' (optimizer.lr); did you mean 'optimizer.learning_rate'?",
    ),
    (
        "optimizer.learning_rate=fast",
        "optimizer.learning_rate must be float for optax.adamw, not 'fast' (str)",
    ),
    ("optimizer.nesterov=3", "optimizer.nesterov must be bool for optax.adamw, not 3 (int)"),
    ("optimizer.schedule={peak: 3}", "optimizer.schedule says nothing to build; it needs the key _target_"),
    (
        "optimizer.schedule={_target_: optax.constant_schedule, valu: 3}",
        "takes no keyword 'valu' (optimizer.schedule.valu); did you mean 'optimizer.schedule.value'?",
    ),
    (
        "optimizer._target_=optax.adamww",
        "the target 'optax.adamww' of optimizer cannot be found: optax has no 'adamww'",
    ),
    (
        "model._target_=their_modul.Model",
        "of model cannot be found: there is no module 'their_modul'; it is looked for",
    ),
    (
        "model._target_=their_module.Modell",
        "their_module has no 'Modell'; did you mean 'their_module.Model'?",
    ),
    ("model._target_=their_module", "their_module is a module, not a class or a function"),
    ("--foo", "there is no option --foo; did you mean '--info'?"),
    ("--cfg=jobb", "invalid choice: 'jobb'"),
    ("--config-name=nope", "there is no configuration 'nope' in"),
]

YAML = [
    (
        "trainer:\n  max_stepz: 3\n",
        ":3: there is no key 'trainer.max_stepz'; did you mean 'trainer.max_steps'?",
    ),
    (
        "monitor:\n  tensorbord: false\n",
        ":3: there is no key 'monitor.tensorbord'; did you mean 'monitor.tensorboard'?",
    ),
    ("checkpoint:\n  every: often\n", ":3: checkpoint.every must be a whole number, not 'often'"),
    ("paths:\n  run: x\n", ":3: there is no key 'paths.run'; did you mean 'paths.runs'?"),
    ("sed: 3\n", ":2: there is no key 'sed'; did you mean 'seed'?"),
    ("trainer: 3\n", ":2: trainer holds keys of its own and cannot be one value of type int"),
    ("trainer:\n  max_steps: -1\n", ":3: trainer.max_steps must be at least 1, not -1"),
    ("trainer: [\n", ":3: this is not valid YAML"),
    ("seed: 1\nseed: 2\n", ":3: this is not valid YAML: found duplicate key seed"),
    ("optimizer:\n  weight_decy: 1\n", ":3: optax.adamw takes no keyword 'weight_decy'"),
    (
        "optimizer:\n  clip_norm: yes\n",
        ":3: optimizer.clip_norm must be float | None for optax.adamw, not True (bool)",
    ),
    ("model:\n  _target_: optax.nope\n", ":3: the target 'optax.nope' of model cannot be found"),
    (
        "optimizer:\n  b1: ${optimiser.b2}\n",
        ":3: optimizer.b1 cannot be resolved: Interpolation key 'optimiser.b2' not found",
    ),
    ("defaults:\n  - override /modle: cnn\n", ": Could not override 'modle'"),
    (
        "defaults:\n  - override /model: nope\n",
        ": the group 'model' has no option 'nope'; it can be: cnn, mlp",
    ),
]


def _refused(arguments: list[str], capsys: pytest.CaptureFixture[str], workspace: Path) -> str:
    before = sorted(workspace.rglob("*"))
    assert main(["train", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.startswith("ConfigError: ") and "Traceback" not in printed.err
    assert sorted(workspace.rglob("*")) == before
    return printed.err.removeprefix("ConfigError: ").strip()


@pytest.mark.parametrize(("argument", "message"), COMMAND_LINE)
def test_on_the_command_line(argument: str, message: str, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _refused([*OPTIONS, argument], capsys, workspace)
    assert text.startswith("command line: ") and message in text


@pytest.mark.parametrize(("content", "message"), YAML)
def test_in_a_file_of_the_user(
    content: str, message: str, workspace: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(workspace, {"groups/debug/wrong.yaml": f"# @package _global_\n{content}"})
    text = _refused([*OPTIONS, "debug=wrong"], capsys, workspace)
    assert text.startswith("groups/debug/wrong.yaml" + message)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("model/wrong.yaml", "2: their_module.Model takes no keyword 'widht'"),
        ("data/wrong.yaml", "2: their_module.Data takes no keyword 'widht'"),
        ("task/wrong.yaml", "2: their_module.Task takes no keyword 'widht'"),
        ("optimizer/wrong.yaml", "2: optax.sgd takes no keyword 'widht'"),
        ("trainer/wrong.yaml", "2: there is no key 'trainer.widht'"),
        ("monitor/wrong.yaml", "2: there is no key 'monitor.widht'"),
        ("checkpoint/wrong.yaml", "2: there is no key 'checkpoint.widht'"),
        (
            "debug/wrong.yaml",
            " options of the group 'debug' change the whole configuration; begin the file with the line",
        ),
    ],
)
def test_an_unknown_key_in_any_group(
    file: str, message: str, workspace: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    group = file.partition("/")[0]
    targets = {
        "model": "their_module.Model",
        "data": "their_module.Data",
        "task": "their_module.Task",
        "optimizer": "optax.sgd",
    }
    first = f"_target_: {targets[group]}\n" if group in targets else "# a group of the user's\n"
    write(workspace, {f"groups/{file}": f"{first}widht: 3\n"})
    text = _refused([*OPTIONS, f"{group}=wrong"], capsys, workspace)
    assert text.startswith(f"groups/{file}:{message}")


def test_an_additional_directory_that_does_not_exist(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'" + str(workspace / "nope") + "' not found" in _refused(["--config-dir=nope"], capsys, workspace)


def test_a_missing_keyword_is_told_at_the_target(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _refused([*OPTIONS, "~model.width"], capsys, workspace)
    assert text == (
        "groups/model/theirs.yaml:1: their_module.Model needs the keyword 'width', which has no value; write "
        "model.width=VALUE"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tran"], "ConfigError: there is no command 'tran'; did you mean 'train'?"),
        (
            ["resume"],
            "ConfigError: command line: framework resume needs one run directory: framework resume run=DIR",
        ),
        (["evaluate", "run=nope"], "RunError: there is no directory"),
        (["resume", "run=groups"], "is not a run: it has no run.json"),
    ],
)
def test_other_commands(
    arguments: list[str], message: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1
