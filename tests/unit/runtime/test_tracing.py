"""The trace beside a run: it records the events, and never disturbs the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clonos_py import Job, Record
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.coordinator_events import Deployed, Finished
from clonos_py.model.errors import CapacityError, SettingError
from clonos_py.observe.events import Event, TraceStopped, no_listener
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.tracing import traced
from clonos_py.settings.resolution import resolve
from tests.unit.task.plans import three


class Row(Record):
    number: int


def job() -> Job:
    job = Job("traced")
    rows = job.source(MemorySource([Row(n) for n in range(1_000)])).named("numbers")
    rows.map(lambda row: row, returns=Row).sink(MemorySink())
    return job


def test_a_run_leaves_a_trace_of_its_tasks(tmp_path: Path) -> None:
    settings = resolve({"runtime": "local", "trace": str(tmp_path / "trace")})
    run_job(job(), settings)
    header = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert (header["job"], header["settings"]["runtime"]) == ("traced", "local")
    assert header["vertices"][0]["source"]
    readings = pq.read_table(tmp_path / "trace" / "readings").to_pylist()
    assert max(row["rows_in"] for row in readings if row["vertex"] == header["vertices"][0]["name"]) == 1_000
    events = pq.read_table(tmp_path / "trace" / "events").column("what").to_pylist()
    assert (events[0], events[-1]) == ("Deploying", "Finished")
    assert "Deployed" in events
    assert "CheckpointCompleted" in events


def test_a_trace_that_cannot_be_written_ends_and_the_run_continues(tmp_path: Path) -> None:
    heard: list[Event] = []
    settings = resolve({"runtime": "local", "trace": str(tmp_path / "trace")})
    with traced(three(), settings, lambda at_us, event: heard.append(event)) as listener:
        shutil.rmtree(tmp_path / "trace")
        for second in range(5):
            listener(second * 1_000_000, Deployed(tasks=3, standbys=3))
        listener(5_000_000, Finished())
    assert [type(event) for event in heard].count(TraceStopped) == 1
    assert isinstance(heard[-1], Finished)


def test_a_trace_contains_the_error_that_ended_the_job(tmp_path: Path) -> None:
    settings = resolve({"runtime": "local", "trace": str(tmp_path / "trace")})
    with pytest.raises(CapacityError), traced(three(), settings, no_listener):
        raise CapacityError("the log is full")
    (row,) = pq.read_table(tmp_path / "trace" / "events").to_pylist()
    assert (row["what"], row["detail"]) == ("Broken", "CapacityError: the log is full")


def test_a_trace_needs_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(SettingError, match="is not empty"):
        run_job(job(), resolve({"runtime": "local", "trace": str(tmp_path)}))
