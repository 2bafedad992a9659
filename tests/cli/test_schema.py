import dataclasses
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from framework.cli import schema
from framework.cli.check import field_at, nearest_key, type_name

NODES = {
    "trainer": schema.TrainerConfig,
    "monitor": schema.MonitorConfig,
    "checkpoint": schema.CheckpointConfig,
}


def test_the_configuration_lies_where_it_is_looked_for() -> None:
    groups = {one.name for one in schema.config_directory().iterdir() if one.is_dir()}
    wanted = {"data", "model", "task", "optimizer", "trainer", "monitor", "checkpoint", "experiment", "debug"}
    assert wanted <= groups


@pytest.mark.parametrize(("name", "node"), NODES.items())
def test_the_default_yaml_says_what_the_schema_says(name: str, node: type) -> None:
    """A user's own trainer/mine.yaml that leaves a key out gets what trainer/default.yaml shows."""
    written = OmegaConf.to_container(OmegaConf.load(schema.config_directory() / name / "default.yaml"))
    assert isinstance(written, dict)
    declared = {one.name: one.default for one in dataclasses.fields(node)}
    assert written.keys() == declared.keys()
    assert {key: value for key, value in written.items() if declared[str(key)] != "???"}.items() <= declared.items()


def test_yaml_has_no_key_that_the_schema_lacks() -> None:
    for name, node in NODES.items():
        for file in (schema.config_directory() / name).glob("*.yaml"):
            OmegaConf.merge(OmegaConf.structured(node), OmegaConf.load(file))


def test_fields_are_found_by_their_path() -> None:
    assert field_at("trainer.evaluate_every")[1] == (int | None)  # pyright: ignore
    assert field_at("trainer.evaluate_evry") is None
    assert field_at("model.width") is None
    assert type_name(int | None) == "a whole number or null"


def test_an_unknown_key_is_also_looked_for_in_other_nodes() -> None:
    assert nearest_key("max_steps", {"seed": 0}) == "did you mean 'trainer.max_steps'?"
    assert nearest_key("lr", {"seed": 0}) == "did you mean 'optimizer.learning_rate'?"
    assert nearest_key("trainer.log_evry", {"log_every": 0}) == "did you mean 'trainer.log_every'?"


def test_a_shipped_package_carries_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "framework" / "configs"
    inside.mkdir(parents=True)
    (inside / "train.yaml").write_text("")
    monkeypatch.setattr(schema, "__file__", str(tmp_path / "framework" / "cli" / "schema.py"))
    assert schema.config_directory() == inside
