"""Checkpoints of a job that was stopped with rows in flight: which job may resume, and its output."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from clonos_py.checkpoint.layout import Location
from clonos_py.checkpoint.manifest import is_delta
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors import read_results
from clonos_py.model.snapshots import TaskHandle
from tests.jobs.half_way import RECORDS, SCRIPT, go_on, put_back, some_results, stopped_half_way
from tests.jobs.in_process import Ended
from tests.observed import without_warnings

FILES, ROWS, KEYS = 4, 600, 5

JOB = (
    RECORDS
    + """
class Sum(Process[Row, Total]):
    total: int = state(0)
    def on_row(self, row: Row, ctx: Context) -> Total:
        take_time()
        self.total += 1
        return Total(row.id, self.total)

job = Job("under_way", checkpoint_interval="20ms", runtime="local", protocol="unaligned", parallelism=2)
rows = job.source(FileSource("in", format="jsonl", schema=Row)).named("rows").rebalance()
rows.key_by("key").process(Sum).named("sums").sink(FileSink("out")).named("out")
"""
)

UNALIGNED = 'protocol="unaligned"'


def newest() -> Sequence[TaskHandle]:
    latest = CheckpointStore("checkpoints", "under_way").latest()
    return latest.tasks if latest else []


def rows_under_way() -> int:
    return sum(stored.rows for task in newest() for frames in task.frames.values() for stored in frames)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose newest checkpoint contains rows in flight."""

    def enough() -> bool:
        return some_results() and rows_under_way() > 0

    return stopped_half_way(tmp_path_factory.mktemp("stopped"), JOB, FILES, ROWS, KEYS, enough)


@pytest.fixture(scope="module")
def stopped_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with logs and snapshots that tasks have taken alone."""

    def enough() -> bool:
        return some_results() and rows_under_way() > 0 and any(task.logs is not None for task in newest())

    job = JOB.replace(UNALIGNED, 'protocol="uncoordinated"')
    return stopped_half_way(tmp_path_factory.mktemp("alone"), job, FILES, ROWS, KEYS, enough)


@pytest.fixture
def unaligned(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stopped)
    put_back()


@pytest.fixture
def alone(stopped_alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stopped_alone)
    put_back()


@pytest.mark.usefixtures("unaligned")
def test_the_same_job_resumes() -> None:
    complete(go_on())
    assert rows_under_way() == 0, "the last checkpoint has no rows in flight"


@pytest.mark.usefixtures("unaligned")
def test_a_job_with_aligned_barriers_resumes() -> None:
    complete(go_on("--protocol", "aligned"))


def a_stored_frame() -> Location:
    frames = (stored for task in newest() for output in task.frames.values() for stored in output)
    return Location.parse(next(stored.location for stored in frames if stored.rows))


def a_stored_log() -> Location:
    return Location.parse(next(task.logs.location for task in newest() if task.logs is not None))


def missing(file: Path, location: Location) -> None:
    file.unlink()


def torn(file: Path, location: Location) -> None:
    os.truncate(file, location.offset + location.size_bytes // 2)


def altered(file: Path, location: Location) -> None:
    content = bytearray(file.read_bytes())
    content[location.offset + location.size_bytes // 2] ^= 1
    file.write_bytes(content)


def refused_until_put_back(location: Location) -> None:
    """For any damage to the file, the error names it; then the job resumes."""
    file = Path("checkpoints", "under_way", "line", location.file)
    content = file.read_bytes()
    for damage in (missing, torn, altered):
        damage(file, location)
        done = go_on()
        assert done.returncode == 1, damage.__name__
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert file.name in line
        assert "restore the file from a copy, or start over with --fresh" in line
        file.write_bytes(content)
    complete(go_on())


def complete(done: Ended) -> None:
    """Every row is visible once, and no key has lost rows."""
    assert done.returncode == 0, done.stderr
    written = read_results("out")
    assert sorted(row["id"] for row in written) == list(range(ROWS))
    assert sorted(row["total"] for row in written) == sorted(KEYS * list(range(1, ROWS // KEYS + 1)))


@pytest.mark.usefixtures("unaligned")
def test_another_parallelism_is_refused_and_the_checkpoint_stays() -> None:
    done = go_on("--parallelism", "1")
    (line,) = without_warnings(done.stderr)
    assert done.returncode == 1
    assert "rows that were in flight between tasks (rows x 2" in line
    assert "resume with the operators and the parallelism that it was written with" in line
    complete(go_on())


@pytest.mark.usefixtures("unaligned")
def test_a_damaged_frame_is_an_error_that_names_the_file() -> None:
    refused_until_put_back(a_stored_frame())


# ---- snapshots that tasks have taken alone


@pytest.mark.usefixtures("alone")
def test_after_the_loss_of_the_whole_job_tasks_resume_from_their_own_snapshots() -> None:
    complete(go_on())
    complete(go_on("--parallelism", "1"))  # it had ended: no rows are in flight


UNFIT = {
    ("--parallelism", "1"): "other operators or another parallelism",
    ("--protocol", "aligned"): "protocol aligned",
    ("--protocol", "communication-induced"): "protocol communication-induced",
    ("--guarantee", "exactly-once", "--sharing-depth", "0"): "sharing_depth 0",
}


@pytest.mark.usefixtures("alone")
def test_options_that_do_not_fit_the_checkpoint_are_refused_and_it_stays() -> None:
    for options, named in UNFIT.items():
        done = go_on(*options)
        (line,) = without_warnings(done.stderr)
        assert done.returncode == 1, options
        assert f"was taken with protocol uncoordinated, and this run has {named}" in line
    complete(go_on())


@pytest.mark.usefixtures("alone")
def test_other_code_is_refused() -> None:
    job = Path(SCRIPT).read_text()
    Path(SCRIPT).write_text(job.replace("self.total += 1", "self.total += 2"))
    done = go_on()
    Path(SCRIPT).write_text(job)
    assert done.returncode == 1
    assert "and this run has other code" in done.stderr
    complete(go_on())


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("stored", [a_stored_frame, a_stored_log])
def test_damage_to_parts_of_a_snapshot_is_an_error_that_names_the_file(stored: Callable[[], Location]) -> None:
    refused_until_put_back(stored())


@pytest.mark.usefixtures("alone")
def test_a_manifest_without_its_base_is_an_error_and_the_checkpoint_stays() -> None:
    store = CheckpointStore("checkpoints", "under_way")
    newest = store.latest()
    assert newest is not None
    generation = store.open_generation()
    whole = replace(newest, generation=generation, checkpoint=newest.checkpoint + 100)
    first, *others = whole.tasks
    store.write_manifest(whole)
    newest = replace(whole, checkpoint=whole.checkpoint + 1, tasks=[replace(first, written_bytes=0), *others])
    store.write_manifest(newest)
    base, delta = sorted(Path(store.path, "line", "manifests").iterdir())[-2:]
    assert is_delta(delta.read_bytes())
    content = base.read_bytes()
    base.unlink()
    done = go_on()
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert f"{base.name} is missing; restore the file from a copy, or start over with --fresh" in line
    base.write_bytes(content)
    assert store.latest() == newest
    complete(go_on())
