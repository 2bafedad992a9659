from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.cli.origin import Origins, find_in_file, search_directories, split_override

Write = Callable[[Path, dict[str, str]], None]

FILES = {
    "conf/main.yaml": (
        "defaults:\n  - schema\n  - _self_\n  - model: mlp\n  - experiment: null\nseed: 1\nname: first\n"
    ),
    "conf/model/mlp.yaml": "defaults:\n  - base\nwidth: 3\n",
    "conf/model/base.yaml": "width: 1\ndepth: '007'\n",
    "conf/experiment/e.yaml": "# @package _global_\nname: 1e10\nmodel:\n  depth: 2\n",
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> Path:
    write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf"


def test_the_last_file_that_sets_a_key_is_named_with_its_line(conf: Path) -> None:
    plain = Origins([conf], [], {"model": "mlp", "experiment": None}, "main")
    assert plain.place("name") == "conf/main.yaml:7"
    assert plain.place("model.width") == "conf/model/mlp.yaml:3"
    assert plain.place("model.depth") == "conf/model/base.yaml:2"
    with_experiment = Origins([conf], [], {"model": "mlp", "experiment": "e"}, "main")
    assert with_experiment.place("name") == "conf/experiment/e.yaml:2"
    assert with_experiment.place("model.depth") == "conf/experiment/e.yaml:4"


def test_the_command_line_comes_last(conf: Path) -> None:
    origins = Origins([conf], ["model=mlp", "++model.width=7", "+model.extra={a: 1}"], {"model": "mlp"}, "main")
    assert origins.place("model.width") == "command line"
    assert origins.place("model.extra.a") == "command line"
    assert origins.place("model.depth") == "conf/model/base.yaml:2"
    assert origins.place("nothing.of.this") == "the configuration"


def test_text_is_given_as_written_unless_it_is_quoted(conf: Path) -> None:
    origins = Origins([conf], ["a=1e10", "b='1e10'", "c=${a}"], {"model": "mlp", "experiment": "e"}, "main")
    texts = {key: origin.text for key in ("name", "model.width", "a", "b", "c") if (origin := origins.find(key))}
    assert texts == {"name": "1e10", "model.width": "3", "a": "1e10", "b": None, "c": None}
    quoted = find_in_file(conf / "model" / "base.yaml", "model.depth", "model")
    assert quoted is not None and quoted.text is None


@given(st.sampled_from(["", "+", "++", "~"]), st.from_regex(r"[a-z]+(\.[a-z]+)*", fullmatch=True), st.text())
def test_splitting_loses_nothing(sign: str, key: str, text: str) -> None:
    override = split_override(f"{sign}{key}={text}")
    assert override is not None and (override.sign, override.key, override.text) == (sign, key, text)


def test_options_are_no_overrides() -> None:
    assert split_override("--cfg=job") is None


def test_directories_are_searched_in_the_order_of_hydra(tmp_path: Path) -> None:
    found = search_directories(tmp_path, "/b", ["hydra.searchpath=[file:///c, '/d']", "seed=1"])
    assert found == [tmp_path, Path("/b"), Path("/c"), Path("/d")]
