"""Traces: parts are complete whenever a run ends, and repeated reports are written once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clonos_py.model.coordinator_events import IntervalChosen
from clonos_py.model.errors import SettingError
from clonos_py.observe import events as e
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.trace import TABLES, TraceWriter, read_header
from tests.unit.observe.traces import HEADER, SECOND, SINK, measured, reading, write

_ENDLESS = """
import itertools, sys
from pathlib import Path
from clonos_py.observe.trace import TraceWriter
from tests.unit.observe.traces import HEADER, SOURCE, measured, reading
writer = TraceWriter(Path(sys.argv[1]), HEADER)
for second in itertools.count(1):
    writer(*measured(*(reading(second * 1_000_000, SOURCE, process, second) for process in range(200))))
    print(second, flush=True)
"""


def test_a_trace_contains_the_reported_events(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace")
    assert read_header(trace)["job"] == "by-hand"
    for name, schema in TABLES.items():
        assert pq.read_table(trace / name).schema == schema
    events = pq.read_table(trace / "events").to_pylist()
    failed = next(row for row in events if row["what"] == "TaskFailed")
    assert (failed["vertex"], failed["index"], failed["detail"]) == ("window", 0, "killed by --kill")
    assert [row["what"] for row in events][-1] == "Finished"
    assert {row["checkpoint"] for row in events if row["what"] == "CheckpointCompleted"} == {1, 2}


def test_the_interval_that_a_job_chooses_is_in_the_trace_with_what_it_follows_from(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, {})
    writer(1, IntervalChosen(4.2, 4.2, None, 0.012, 0.48, 12.5, 3 / 60, 0.9531))
    writer.close()
    (row,) = pq.read_table(tmp_path / "events").to_pylist()
    assert (row["what"], row["duration_ms"]) == ("IntervalChosen", 4_200)
    assert row["detail"].startswith("checkpoint interval 4.2 s: a checkpoint costs 12 ms")


def test_a_marker_is_written_once_although_processes_report_totals(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace", HEADER)
    seen = LatencyHistogram()
    for second in (1, 2, 3):
        seen.record(second * 100)
        writer(*measured(reading(second * SECOND, SINK, 7, 0, seen.counts)))
    writer.close()
    markers = pq.read_table(tmp_path / "trace" / "markers").to_pylist()
    assert [(row["at_us"] // SECOND, row["times"]) for row in markers] == [(1, 1), (2, 1), (3, 1)]


def test_a_killed_run_leaves_only_complete_parts(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    run = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(trace)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    printed = next(int(line) for line in run.stdout if int(line) >= 20)
    run.send_signal(signal.SIGKILL)
    run.stdout.close()
    run.wait()
    rows = pq.read_table(trace / "readings").num_rows
    assert rows % 200 == 0
    assert rows >= 200 * (printed - 10)


def test_parts_are_written_less_often_as_a_run_gets_longer(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace", HEADER)
    for second in range(1, 1_001):
        writer(*measured(reading(second * SECOND, SINK, 1, 0)))
    assert len(list((tmp_path / "trace" / "readings").iterdir())) < 200


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SettingError, match="is not empty"):
        TraceWriter(tmp_path, HEADER)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no trace"):
        read_header(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(SettingError, match="format 99"):
        read_header(tmp_path)


def test_progress_is_not_part_of_the_trace(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace", HEADER)
    writer(5 * SECOND, e.Progress(vertices=(), in_flight_bytes=0))
    writer.close()
    assert not list((tmp_path / "trace" / "events").iterdir())
