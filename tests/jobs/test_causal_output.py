"""Files whose rows are visible at once: jobs are killed as a whole and run again, processes die within them, and every
visible row stays."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos_py.model.coordinator_events import CheckpointCompleted, RolledBack
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.stop_switch import StopSwitch
from tests.jobs import half_way, in_process
from tests.jobs import test_resuming as resuming
from tests.jobs.test_resuming import Arguments
from tests.visible_rows import visible_rows

JOB = re.sub(r'(FileSink\(f"\{folder\}/out/(left|right|windows)")\)', r'\1, delivery="causal")', resuming.JOB)
SELDOM = JOB.replace('checkpoint_interval="20ms"', 'checkpoint_interval="100ms"')

command = resuming.command
"""A fixture."""


def seen(folder: Path) -> list[dict[str, Any]]:
    return visible_rows(folder / "out" / "left")


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "out" / "left").glob("*.jsonl"))


def killed_after(command: list[str], more_bytes: int, folder: Path) -> None:
    enough = size_bytes(folder) + more_bytes
    with resuming.slow(folder), subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and size_bytes(folder) < enough:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the job had ended before"


def test_visible_rows_stay_however_often_the_whole_job_is_killed(command: Arguments, tmp_path: Path) -> None:
    (tmp_path / "resumed.py").write_text(SELDOM)
    before: list[dict[str, Any]] = []
    for _ in range(2):
        killed_after(command("--parallelism", "2"), 1_500, tmp_path)
        before = unchanged(before, tmp_path)
    resuming.finished(command("--parallelism", "2"))
    unchanged(before, tmp_path)
    assert " 0 rows read" in resuming.finished(command("--parallelism", "2"))
    resuming.check(tmp_path)


def unchanged(before: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    now = seen(folder)
    rows = {row["id"]: row for row in now}
    assert len(rows) == len(now)
    assert all(rows[row["id"]] == row for row in before), "a visible row has changed"
    return now


def test_tasks_of_another_parallelism_cannot_resume_with_visible_rows(command: Arguments, tmp_path: Path) -> None:
    job = tmp_path / "resumed.py"
    job.write_text(SELDOM.replace("100ms", "1h"))
    settings = {"parallelism": 2, "checkpoints": str(tmp_path / "checkpoints")}
    with resuming.slow(tmp_path):
        in_process.run_until(lambda: size_bytes(tmp_path) >= 1_500, job, {"folder": str(tmp_path)}, **settings)
    message = resuming.refused(command("--parallelism", "3"))
    assert "which only tasks of the operators and the parallelism that wrote them can repeat: resume with" in message
    resuming.finished(command("--parallelism", "2"))
    resuming.check(tmp_path)


STOPPED = (
    half_way.RECORDS
    + """
def slow(row: Row) -> Row:
    take_time()
    return row

job = Job("stopped", checkpoint_interval="20ms", runtime="local", parallelism=2)
rows = job.source(FileSource("in", format="jsonl", schema=Row)).named("rows").map(slow).rebalance()
rows.sink(FileSink("out", delivery="causal")).named("out")
"""
)


def test_after_a_stop_a_job_goes_on_at_another_parallelism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row behind the last checkpoint is visible, though there is more input."""
    monkeypatch.chdir(tmp_path)
    stop, completed = StopSwitch(), 0

    def stop_soon(at_us: int, event: Event) -> None:
        nonlocal completed
        completed += isinstance(event, CheckpointCompleted)
        if completed >= 3:
            stop.request()

    half_way.write(tmp_path, STOPPED, files=16, rows=600, keys=5)
    in_process.run_heard(stop_soon, tmp_path / half_way.SCRIPT, stop=stop, checkpoints="checkpoints")
    shown = visible_rows(tmp_path / "out")
    assert 0 < len(shown) < 600
    (tmp_path / "slow").unlink()
    done = half_way.go_on("--parallelism", "3")
    assert done.returncode == 0, done.stderr
    rows = visible_rows(tmp_path / "out")
    assert sorted(row["id"] for row in rows) == list(range(600))
    assert [row for row in shown if row not in rows] == []


def test_killed_tasks_do_not_change_the_output(command: Arguments, tmp_path: Path) -> None:
    """The job is slow until all of them are dead."""
    (tmp_path / "resumed.py").write_text(JOB)
    kills = ("left[0]@100ms", "right[0]@150ms", "left[0]@300ms")
    events: list[Event] = []

    def all_dead(event: Event) -> bool:
        events.append(event)
        return sum(isinstance(event, TaskFailed) for event in events) == len(kills)

    slow_until(all_dead, tmp_path, kills=kills)
    assert not any(isinstance(event, RolledBack) for event in events)
    resuming.check(tmp_path)


def test_the_output_can_be_read_while_the_job_runs(command: Arguments, tmp_path: Path) -> None:
    """No checkpoint is complete before the end."""
    (tmp_path / "resumed.py").write_text(SELDOM.replace("100ms", "1h"))
    lengths = set[int]()

    def some_lengths(event: Event) -> bool:
        lengths.add(len(seen(tmp_path)))
        return len(lengths) > 5

    slow_until(some_lengths, tmp_path)
    assert len(lengths) > 5
    resuming.check(tmp_path)


def slow_until(enough: Callable[[Event], bool], folder: Path, **settings: Any) -> None:
    """Runs the job, slowly until the condition is true, which is asked at every event."""
    pace = folder / "pace"
    pace.touch()

    def listener(at_us: int, event: Event) -> None:
        if pace.exists() and enough(event):
            pace.unlink()

    in_process.run_heard(listener, folder / "resumed.py", {"folder": str(folder)}, **settings)
