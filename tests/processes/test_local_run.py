"""The local driver keeps time while it is busy: due work is done, and its reports are right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.checkpoint.folder import Content, LocalFolder
from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.model.errors import CapacityError
from clonos_py.observe.events import Event, Progress
from clonos_py.observe.status import RunStatus
from clonos_py.runtime.spill import FileShelf, SpilledAt
from clonos_py.settings.resolution import resolve


def busy_run(events: int = 2_000_000, out: Path | None = None, **settings: object) -> RunStatus:
    """``out``: where the sink writes; None for the folder of temporary files."""
    status = RunStatus()
    order = QueryRun("q8", events, sink=SinkKind.DIGEST, out=out)
    run_query(order, resolve({"runtime": "local", **settings}), status.on)
    return status


def test_a_busy_job_takes_checkpoints_and_kills_in_time() -> None:
    status = busy_run(checkpoint_interval="50ms", kills=["join[0]@60ms"])
    (recovery,) = status.recoveries
    assert str(recovery.task) == "join[0]"
    assert status.finished is not None
    assert 60_000 <= recovery.failed_at_us < status.at_us
    assert recovery.first_new_effect_ms is not None
    assert len(status.checkpoints) >= 2
    assert not status.rollbacks


@pytest.mark.parametrize("file", ["state/", "manifests/"])
def test_tasks_go_on_while_the_disk_writes(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """The first write of a snapshot or manifest ends only when the thread of the tasks has reported again."""
    writing, went_on, write = threading.Event(), threading.Event(), LocalFolder.write
    waited: list[bool] = []

    def slow(self: LocalFolder, path: str, content: Content) -> None:
        if file in path and not writing.is_set():
            writing.set()
            waited.append(went_on.wait(10))
        write(self, path, content)

    def on(at_us: int, event: Event) -> None:
        if writing.is_set() and isinstance(event, Progress):
            went_on.set()

    monkeypatch.setattr(LocalFolder, "write", slow)
    order = QueryRun("q8", 1_000_000, sink=SinkKind.DIGEST)
    run_query(order, resolve({"runtime": "local", "protocol": "uncoordinated", "checkpoint_interval": "50ms"}), on)
    assert waited == [True]


def test_a_job_without_logs_rolls_back() -> None:
    killed = busy_run(checkpoint_interval="50ms", kills=["join[0]@60ms"], guarantee="exactly-once", sharing_depth=0)
    (rollback,), (recovery,) = killed.rollbacks, killed.recoveries
    assert rollback.reason == "join[0] failed, and nothing is logged"
    assert recovery.activated_ms is not None
    assert killed.finished is not None


def test_two_kills_of_one_task_at_once_hit_it_and_then_its_replacement() -> None:
    status = busy_run(checkpoint_interval="50ms", kills=["join[0]@60ms", "join[0]@60ms"])
    assert [str(recovery.task) for recovery in status.recoveries] == ["join[0]", "join[0]"]
    assert status.finished is not None


def test_a_job_that_is_slower_than_the_heartbeat_timeout_has_no_failures() -> None:
    """All tasks share a thread, so that silence means nothing."""
    status = busy_run(events=500_000, heartbeat_timeout="1ms", checkpoint_interval="20ms")
    assert not status.recoveries
    assert status.finished is not None


def test_a_kill_after_the_end_of_the_job_is_reported() -> None:
    (missed,) = busy_run(100_000, kills=["join[0]@60s"]).kills_missed
    assert (str(missed.task), missed.after_us) == ("join[0]", 60_000_000)


def test_many_retained_frames_are_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: list[SpilledAt] = []

    class Watched(FileShelf):
        def write(self, body: pa.Buffer | pa.RecordBatch) -> SpilledAt:
            spilled.append(super().write(body))
            return spilled[-1]

    monkeypatch.setattr("clonos_py.runtime.local.run.FileShelf", Watched)
    order = QueryRun("q8", 1_500_000, sink=SinkKind.DIGEST)
    settings = {"runtime": "local", "checkpoint_interval": "60s"}
    in_memory = run_query(order, resolve(settings))["output"]
    assert spilled == []
    spill = {"spill": "spill-threshold", "spill_threshold": "64KiB", "kills": ["join[0]@60ms"]}
    made = run_query(order, resolve({**settings, **spill}))
    assert sum(place.size_bytes for place in spilled) > 100_000
    assert len(made["failures"]) == 1
    assert made["output"] == in_memory, "frames for a replacement come from disk"


def test_a_full_disk_is_reported_and_slows_the_job_down_to_the_pace_of_its_checkpoints(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames are there; results and checkpoints are elsewhere."""
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    settings: dict[str, Any] = {"checkpoints": str(tmp_path), "checkpoint_interval": "60s", "in_flight_budget": "1MiB"}
    status = busy_run(1_000_000, tmp_path / "out", **settings, spill="spill-buffer")
    (failed, *_) = status.spills_failed
    assert "is full" in failed.reason
    assert len(status.checkpoints) >= 2, "only the last checkpoint is due: one was requested to make room"
    assert status.finished is not None


def test_an_exhausted_reserve_stops_the_job_and_a_larger_budget_resumes_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"events": 3_000_000, "checkpoints": str(tmp_path), "checkpoint_interval": "10ms"}
    with pytest.raises(CapacityError, match="its reserve is spent: checkpoint more often"):
        busy_run(in_flight_budget="300KiB", **settings)
    assert busy_run(**settings).finished is not None


def test_the_last_progress_counts_every_row() -> None:
    status = busy_run(500_000)
    assert status.finished is not None
    assert status.progress is not None
    assert status.progress.vertices[0].rows_in == 500_000
