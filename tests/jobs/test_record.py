"""Jobs that record: what the checkpoint folder then holds, for several protocols and both kinds of recovery."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.model.snapshots import Manifest
from clonos_py.process.progress import progress_of
from tests.jobs import in_process
from tests.recorded import determinants_recorded

JOB = """
from __future__ import annotations
import time
from clonos_py import Context, Job, Record
from clonos_py.connectors import FileSink, FileSource

class Row(Record):
    id: int

class Seen(Record):
    id: int
    dice: float

def rolled(row: Row, ctx: Context) -> Seen:
    time.sleep(0.001)
    return Seen(row.id, ctx.random.random())

def job(folder: str) -> Job:
    job = Job("recorded", checkpoint_interval="20ms", runtime="local", frame_rows=20, record="1h")
    rows = job.source(FileSource(f"{folder}/in", format="jsonl", schema=Row))
    seen = rows.rebalance().map(rolled).named("rolled")
    seen.rebalance().sink(FileSink(f"{folder}/out")).named("out")
    return job
"""
ROWS = 400


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    rows = "".join(json.dumps({"id": number}) + "\n" for number in range(ROWS))
    (tmp_path / "in" / "rows.jsonl").write_text(rows)
    (tmp_path / "recorded.py").write_text(JOB)
    return tmp_path / "recorded.py"


def run(script: Path, *more: str) -> CheckpointStore:
    folder = script.parent
    ended = in_process.run(script, "--folder", str(folder), "--checkpoints", str(folder / "checkpoints"), *more)
    assert ended.returncode == 0, ended.stderr
    return CheckpointStore(str(folder / "checkpoints"), "recorded")


def sunk(manifests: Sequence[Manifest]) -> list[list[int]]:
    """By checkpoint: the checksum of each task that has sinks."""
    return [[number for h in m.tasks for number in progress_of(h).sunk] for m in manifests]


@pytest.mark.parametrize(
    "given",
    [
        ("--protocol", "aligned"),
        ("--protocol", "aligned", "--sharing-depth", "0", "--guarantee", "exactly-once"),
        ("--protocol", "unaligned", "--standby-feed", "5ms"),
        ("--protocol", "uncoordinated"),
        ("--protocol", "uncoordinated", "--sharing-depth", "0", "--guarantee", "exactly-once"),
    ],
    ids=" ".join,
)
def test_the_folder_has_the_whole_log_of_each_task(script: Path, given: Sequence[str]) -> None:
    store = run(script, *given, "--parallelism", "2", "--kill", "rolled[0]@100ms", "--kill", "out[1]@200ms")
    manifests = store.manifests()
    recorded = manifests[0].recorded
    assert recorded is not None
    assert (recorded.record_us, recorded.settings["record"]) == (3_600_000_000, "1h")
    assert all(m.recorded is not None and m.recorded.completed_ms > 1_700_000_000_000 for m in manifests)
    assert min(determinants_recorded(store).values()) > 0
    assert len(sunk(manifests)[-1]) == 2
    assert all(sunk(manifests)[-1])


def test_a_run_without_a_record_deletes_it(script: Path) -> None:
    run(script)
    more = script.parent / "in" / "rows_2.jsonl"
    more.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(ROWS, 2 * ROWS)))
    store = run(script, "--record", "off", "--checkpoints-kept", "1")
    assert store.bases() == []
    assert len(store.manifests()) <= 2, "the local runtime keeps two"
    assert all(manifest.recorded is None for manifest in store.manifests())


def test_a_record_of_a_size_is_no_larger(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of the record is on disk that is not counted."""
    store = run(script, "--record", "20KB", "--protocol", "aligned")
    line = Path(store.path) / "line"
    files = [file for folder in ("manifests", "records", "answers") for file in (line / folder).rglob("*.*")]
    assert sum(file.stat().st_size for file in files) <= store.record_bytes()
    assert store.record_bytes() <= 20_000 or len(store.bases()) == 1
    capsys.readouterr()
    assert invoke(["record", "ls", "--checkpoints", str(script.parent / "checkpoints")]) == 0
    assert "record = 20KB: " in capsys.readouterr().out


def test_the_record_is_listed(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = run(script, "--parallelism", "2")
    capsys.readouterr()
    folder = str(script.parent / "checkpoints")
    assert invoke(["record", "ls", "--checkpoints", folder]) == 0
    shown = capsys.readouterr().out
    assert "the record of 'recorded'" in shown
    assert "rolled[1]" in shown
    assert "record = 1h: " in shown.splitlines()[-1]
    assert invoke(["record", "ls", "--checkpoints", folder, "--job", "recorded", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    (period,) = found["periods"]
    assert (found["job"], found["folder"]) == ("recorded", store.path)
    assert period["checkpoints"] == len(store.manifests())
    assert period["determinants"] == sum(determinants_recorded(store).values()) > 0
    assert period["log_bytes"] > 0
    assert found["record"] == "1h"
    assert found["bytes"] == store.record_bytes() > period["log_bytes"]
    with in_process.loaded_once(script):
        named = [str(script), "--folder", str(script.parent), "--checkpoints", folder]
        assert invoke(["record", "ls", *named]) == 0
    assert capsys.readouterr().out == shown


def test_a_run_without_a_checkpoint_folder_cannot_record(script: Path) -> None:
    ended = in_process.run(script, "--folder", str(script.parent))
    assert ended.returncode == 1
    assert "record = 1h (Job(...)) contradicts checkpoints = none" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--checkpoints", "absent"), "there are no jobs in .*absent: give the folder of checkpoints that a job has"),
        (("--checkpoints", "absent", "--job", "other"), "absent/other has no checkpoints: there are no jobs"),
        ((), "there is no checkpoint folder: give --checkpoints"),
    ],
)
def test_a_folder_without_a_record_is_one_line(
    arguments: Sequence[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["record", "ls", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(problem, line), line


def test_checkpoints_without_a_record_and_damaged_ones_are_one_line(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = script.parent / "checkpoints"
    store = run(script, "--record", "off")
    capsys.readouterr()
    assert invoke(["record", "ls", "--checkpoints", str(folder)]) == 1
    assert "has no record: run the job with --record" in capsys.readouterr().err
    damaged = sorted((Path(store.path) / "line/manifests").iterdir())[-1]
    damaged.write_bytes(damaged.read_bytes()[:-3])
    assert invoke(["record", "ls", "--checkpoints", str(folder)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{damaged} is corrupt" in line
