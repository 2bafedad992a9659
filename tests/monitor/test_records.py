"""metrics.jsonl: valid JSON, complete, and rewound on resume."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import RunError, TrainingError
from framework.monitor import Records, read_records

RECORD = st.tuples(
    st.sampled_from(["train", "eval", 'sp"lit\n']),
    st.dictionaries(st.text(max_size=8).filter(lambda tag: tag not in ("step", "split", "time")), st.floats()),
)


def strict(line: str) -> dict[str, object]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(line, parse_constant=refuse)


@given(written=st.lists(RECORD, max_size=8))
def test_property_every_line_is_json_and_reads_back(
    written: list[tuple[str, dict[str, float]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "metrics.jsonl"
    records = Records(path, clock=lambda: 1.5)
    for step, (split, values) in enumerate(written):
        records.scalars(split, step, values)
    records.close()
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    for line in lines:
        strict(line.decode())
    expected = [{"step": step, "split": split, "time": 1.5, **values} for step, (split, values) in enumerate(written)]
    # repr: NaN equals itself, 0.0 and -0.0 differ.
    assert repr(read_records(path)) == repr(expected)


@given(last=st.integers(0, 12), first_step=st.integers(0, 12), cut=st.integers(0, 60))
def test_property_resume_keeps_exactly_the_whole_records_up_to_the_step(
    last: int, first_step: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "metrics.jsonl"
    records = Records(path, clock=lambda: 1.5)
    for step in range(1, last + 1):
        records.scalars("train", step, {"loss": step / 3})
    records.close()
    content = path.read_bytes()[: max(0, path.stat().st_size - cut)]
    path.write_bytes(content)
    # A line is whole when its closing brace is there; the line break alone may be missing.
    whole = content.count(b"}")
    resumed = Records(path, first_step=first_step, clock=lambda: 2.5)
    resumed.scalars("train", first_step + 1, {"loss": 0.0})
    resumed.close()
    kept = [(step, step / 3) for step in range(1, min(whole, first_step) + 1)]
    assert [(r["step"], r["loss"]) for r in read_records(path)] == [*kept, (first_step + 1, 0.0)]
    assert os.listdir(path.parent) == ["metrics.jsonl"]


def test_non_finite_values_are_strings(tmp_path: Path) -> None:
    records = Records(tmp_path / "metrics.jsonl")
    records.scalars("train", 1, {"a": math.nan, "b": math.inf, "c": -math.inf})
    line = strict((tmp_path / "metrics.jsonl").read_text())
    assert (line["a"], line["b"], line["c"]) == ("NaN", "Infinity", "-Infinity")
    assert read_records(tmp_path / "metrics.jsonl")[0]["b"] == math.inf
    records.close()


def test_split_named_like_a_number_stays_text(tmp_path: Path) -> None:
    records = Records(tmp_path / "metrics.jsonl")
    records.scalars("NaN", 1, {})
    records.close()
    assert read_records(tmp_path / "metrics.jsonl")[0]["split"] == "NaN"


def test_fresh_run_starts_with_an_empty_file(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        records = Records(tmp_path / "new" / "metrics.jsonl")
        records.scalars("eval", 0, {"loss": value})
        records.close()
    assert [record["loss"] for record in read_records(tmp_path / "new" / "metrics.jsonl")] == [2.0]


def test_killed_process_loses_no_record_and_resume_continues(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    code = "import os, signal, sys\nfrom framework.monitor import Records\nrecords = Records(sys.argv[1])\n"
    code += "for step in range(1, 46): records.scalars('train', step, {'loss': 1})\n"
    code += "os.kill(os.getpid(), signal.SIGKILL)\n"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=env, check=False).returncode == -9
    assert [record["step"] for record in read_records(path)] == list(range(1, 46))
    records = Records(path, first_step=30)
    for step in range(31, 61):
        records.scalars("train", step, {"loss": 2})
    records.close()
    read = [(record["step"], record["loss"]) for record in read_records(path)]
    assert read == [(step, 1.0 if step <= 30 else 2.0) for step in range(1, 61)]


def test_kill_during_rewind_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    records = Records(path)
    for step in range(1, 5):
        records.scalars("train", step, {})
    records.close()
    before = path.read_bytes()

    def killed(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Records(path, first_step=2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("first_step", [0, 3])
def test_other_files_are_never_rewritten(tmp_path: Path, first_step: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('{"step": 1, "split": "train", "time": 0.0}\ndear diary\n')
    with pytest.raises(RunError, match=r"Line 2 of .*notes.txt is not a record of a run: b'dear diary"):
        Records(path, first_step=first_step)
    with pytest.raises(RunError, match="remove that line, or name the metrics.jsonl"):
        read_records(path)
    assert path.read_text().endswith("dear diary\n")


@pytest.mark.parametrize("name", ["step", "split", "time"])
def test_reserved_names_are_refused(tmp_path: Path, name: str) -> None:
    records = Records(tmp_path / "metrics.jsonl")
    with pytest.raises(TrainingError, match=f"is called '{name}'.*'eval_{name}'"):
        records.scalars("eval", 1, {name: 1.0})
    records.close()
    assert read_records(tmp_path / "metrics.jsonl") == []


def test_non_scalar_writes_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path / "metrics.jsonl")
    with pytest.raises(TrainingError, match="'loss' has shape"):
        records.scalars("train", 1, {"accuracy": 1.0, "loss": [1.0, 2.0]})
    records.close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_use_after_close_raises_and_close_is_idempotent(tmp_path: Path) -> None:
    records = Records(tmp_path / "metrics.jsonl")
    records.close()
    records.close()
    for use in (lambda: records.scalars("train", 1, {}), records.drain):
        with pytest.raises(TrainingError, match=r"after close\(\)"):
            use()


def test_full_disk_names_file_step_and_remedy(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    records = Records(tmp_path / "metrics.jsonl")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, records._file.fileno())
    os.close(full)
    with pytest.raises(
        RunError, match="record of step 7 could not be written to .*metrics.jsonl .*start the same run again"
    ):
        records.scalars("train", 7, {"loss": 1.0})
    records.close()


def test_unwritable_and_missing_files_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="make it a file this user may write to"):
        Records(tmp_path)
    with pytest.raises(RunError, match="give the metrics.jsonl of a run directory"):
        read_records(tmp_path / "missing.jsonl")
