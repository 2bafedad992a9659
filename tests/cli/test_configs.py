"""Everything in configs/ composes and passes the check."""

import pytest

from framework.cli.main import main
from framework.cli.schema import config_directory

GROUPS = ("experiment", "debug", "optimizer", "data", "model", "task")
OPTIONS = [(group, file.stem) for group in GROUPS for file in sorted((config_directory() / group).glob("*.yaml"))]


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_is_right(group: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"{group}={option}"]
    if option == "transformer":
        arguments += ["data=python_source"]  # its length is that of the data
    if option == "language_model":
        arguments += ["data=python_source"]
    code = main(["train", "--cfg", "job", "--resolve", *arguments])
    assert (code, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("experiment", [option for group, option in OPTIONS if group == "experiment"])
def test_experiments_name_their_runs_and_can_be_debugged(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--cfg", "job", "-p", "name", f"experiment={experiment}"]) == 0
    assert capsys.readouterr().out == f"# @package name\n{experiment}\n"
    assert main(["train", "--cfg", "job", "-p", "trainer.max_steps", f"experiment={experiment}", "debug=fast"]) == 0
    assert capsys.readouterr().out == "# @package trainer.max_steps\n3\n"
