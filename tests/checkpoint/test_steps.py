"""Steps on disk: which count, which are kept, going back, and saving a step again."""

import logging
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import framework as fw
from framework.checkpoint import Checkpoints
from framework.checkpoint.directory import StepDirectory
from framework.errors import CheckpointError


class Value(fw.Module):
    value: fw.State

    def __init__(self, value: float = 0.0) -> None:
        self.value = jnp.full(100, value)


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.save(step, Value(float(step)), wait=True)


def read(checkpoints: Checkpoints, step: int | None = None) -> float:
    value = Value()
    checkpoints.restore(value, step)
    return float(value.value[0])


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def largest_file(directory: Path) -> Path:
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_only_the_newest_steps_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 9, 10, 100, 101)
    assert names(tmp_path) == ["100", "101"]
    assert checkpoints.latest() == 101


def test_attributes_are_public(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path / "run"), every=7)
    assert (checkpoints.directory, checkpoints.every, checkpoints.keep) == (tmp_path / "run", 7, 3)
    assert not checkpoints.directory.exists()  # made by the first save


def test_there_is_no_latest_step_before_the_first_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.latest() is None
    with pytest.raises(CheckpointError, match=r"there is no complete checkpoint in .* \(it has none at all\)"):
        checkpoints.restore(Value())


def test_directories_that_are_no_complete_step_do_not_count(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10)
    (tmp_path / "20").mkdir()  # empty
    (tmp_path / "30").mkdir()
    (tmp_path / "30" / "arrays").mkdir()  # begun
    (tmp_path / "40").write_text("")  # a file
    for other in ("notes", "050", "-1", "6.0"):
        (tmp_path / other).mkdir()
    assert checkpoints.latest() == 10
    assert read(checkpoints) == 10.0
    with pytest.raises(CheckpointError, match=r"step 20 .* it has no manifest, .* Complete steps are 10"):
        checkpoints.restore(Value(), 20)
    with pytest.raises(CheckpointError, match=r"step 11 .* there is no such directory.* step=10"):
        checkpoints.restore(Value(), 11)


@pytest.mark.parametrize("victim", ["manifest.json", "arrays/commit_success.txt", "arrays/_METADATA", "data"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_step_with_a_damaged_file_does_not_count(tmp_path: Path, victim: str, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10, 20)
    path = (
        largest_file(tmp_path / "20" / "arrays" / "ocdbt.process_0") if victim == "data" else tmp_path / "20" / victim
    )
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if victim != "manifest.json" else path.read_bytes()[:-9])
    assert checkpoints.latest() == 10
    assert read(checkpoints) == 10.0
    with pytest.raises(CheckpointError, match=r"step 20 .*cannot be restored, and nothing was changed"):
        checkpoints.restore(Value(), 20)


@given(position=st.integers(0, 10**9), file=st.integers(0, 10**9), bit=st.integers(0, 7))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_is_never_restored(
    tmp_path_factory: pytest.TempPathFactory, position: int, file: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("run")
    checkpoints = Checkpoints(directory)
    save(checkpoints, 20)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    victim = files[file % len(files)]
    content = bytearray(victim.read_bytes())
    content[position % len(content)] ^= 1 << bit
    victim.write_bytes(content)
    value = Value()
    try:
        checkpoints.restore(value)
    except CheckpointError:
        assert np.all(np.asarray(value.value) == 0.0)
    else:
        assert np.all(np.asarray(value.value) == 20.0)


def test_going_back_moves_the_newer_steps_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10, 20, 30)
    assert read(checkpoints, 10) == 10.0
    assert names(tmp_path) == ["10", "20", "30"]  # looking at an old step removes nothing
    with caplog.at_level(logging.WARNING, logger="framework"):
        checkpoints.save(20, Value(21.0), wait=True)
    assert names(tmp_path) == ["10", "20", "20.superseded-1", "30.superseded-1"]
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"checkpoint 30 was moved to {tmp_path}/30.superseded-1",
        f"checkpoint 20 was moved to {tmp_path}/20.superseded-1",
    ]
    assert checkpoints.latest() == 20
    assert read(checkpoints) == 21.0
    checkpoints.save(30, Value(31.0), wait=True)
    assert read(checkpoints) == 31.0
    checkpoints.save(5, Value(6.0), wait=True)
    assert read(checkpoints) == 6.0
    assert "30.superseded-2" in names(tmp_path)


def test_a_step_can_be_saved_over_a_broken_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10)
    (tmp_path / "20").mkdir()
    (tmp_path / "20" / "rest").write_text("x")
    save(checkpoints, 20)
    assert checkpoints.latest() == 20 and read(checkpoints) == 20.0


def test_what_killed_processes_left_is_cleared_by_the_next_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10)
    (tmp_path / "20.partial" / "arrays").mkdir(parents=True)
    (tmp_path / "5.deleted" / "arrays").mkdir(parents=True)
    assert checkpoints.latest() == 10
    save(checkpoints, 30)
    assert names(tmp_path) == ["10", "30"]


def test_a_sealed_step_that_was_not_renamed_any_more_counts(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10, 20)
    (tmp_path / "20").rename(tmp_path / "20.partial")
    assert checkpoints.latest() == 20 and read(checkpoints) == 20.0
    save(checkpoints, 30)
    assert names(tmp_path) == ["10", "20", "30"]


def test_a_step_under_a_wrong_number_does_not_count(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10)
    (tmp_path / "10").rename(tmp_path / "99")
    assert StepDirectory(tmp_path).complete() == []
    with pytest.raises(CheckpointError, match=r"step 99 .* it holds step 10"):
        checkpoints.restore(Value(), 99)


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10)
    manifest = tmp_path / "10" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="its manifest has format 2, and this version reads format 1"):
        checkpoints.restore(Value(), 10)


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    import json

    save(Checkpoints(tmp_path), 10)
    header, body = (tmp_path / "10" / "manifest.json").read_text().splitlines()
    content: Any = json.loads(body)
    assert json.loads(header)["format"] == 1
    assert content["step"] == 10
    assert content["structure"]["leaves"][0] == {
        "path": "value",
        "shape": [100],
        "dtype": "float32",
        "kind": "framework.module.fields:StateKind",
        "trained": False,
    }
    assert content["versions"].keys() >= {"framework", "jax", "orbax-checkpoint", "python"}


def test_the_arrays_are_a_plain_orbax_checkpoint(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    save(Checkpoints(tmp_path), 10)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        arrays = checkpointer.restore(tmp_path / "10" / "arrays")
    assert list(arrays) == ["value"] and np.all(arrays["value"] == 10.0)
