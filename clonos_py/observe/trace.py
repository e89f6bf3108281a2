"""The trace of a run: a folder of Parquet files with events and measurements by task and time, for `clonos analyze`.

    run.json                      the job, its tasks and settings, when it began
    readings/part-000000.parquet  what each process had counted, about four times a second
    markers/part-000000.parquet   the latency markers that reached sinks
    events/part-000000.parquet    checkpoints, failures and the steps of each recovery

A part is written to a temporary file and then renamed. So if a run is killed, every visible part is complete, and only
the data after the last part is missing. Parts are written every second at first, and less often as the run gets longer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clonos_py.model.coordinator_events import CheckpointCompleted, Finished, IntervalChosen
from clonos_py.model.errors import SettingError
from clonos_py.observe import events as e
from clonos_py.observe.metrics import LatencyTotals
from clonos_py.observe.status import interval_text

FORMAT = 1
HEADER = "run.json"
_PART_US_MIN, _PART_US_MAX = 1_000_000, 10_000_000

Field = tuple[str, pa.DataType]


def _schema(*fields: Field) -> pa.Schema:
    """A schema of these fields. Every row also has a time and, if it concerns a task, that task."""
    place: tuple[Field, ...] = (("at_us", pa.int64()), ("vertex", pa.string()), ("index", pa.int32()))
    return pa.schema([*place, *fields])


_SAVED_PARTS = ("open_parts", "extent", "replay_rows")
"""The columns of ``ProcessCounters.saved_parts``."""
READINGS = _schema(
    ("process", pa.int32()), ("active", pa.bool_()),
    ("rows_in", pa.int64()), ("rows_replayed", pa.int64()), ("rows_out", pa.int64()), ("lag_us", pa.int64()),
    ("rows_waiting", pa.int64()), ("frames_queued", pa.int64()), ("held_back", pa.bool_()), ("frames_sent", pa.int64()),
    ("data_bytes", pa.int64()), ("determinant_bytes", pa.int64()), ("in_flight_bytes", pa.int64()),
    ("spilled_bytes", pa.int64()), ("log_bytes", pa.int64()), ("feed_bytes", pa.int64()),
    ("fed_bytes", pa.int64()), ("standby_lag_us", pa.int64()), ("cpu_us", pa.int64()),
    *((name, pa.int64()) for name in _SAVED_PARTS),
)  # fmt: skip
"""Counters are totals since the start of the process. A task's next attempt is another process."""

MARKERS = _schema(("latency_us", pa.int64()), ("times", pa.int64()))
"""``times`` markers took ``latency_us`` (1.6% too high at most) and arrived shortly before ``at_us``."""

EVENTS = _schema(
    ("what", pa.string()), ("checkpoint", pa.int64()), ("duration_ms", pa.float64()), ("bytes", pa.int64()),
    ("rows", pa.int64()), ("attempt", pa.string()), ("detail", pa.string()), ("cost_ms", pa.float64()),
    ("requests", pa.int64()),
)  # fmt: skip
"""``what`` is the kind of event. ``detail`` is how a task failed, or the reason of the event. ``cost_ms`` is the work
that a checkpoint has cost, ``requests`` its requests to an object store."""

TABLES: Mapping[str, pa.Schema] = {"readings": READINGS, "markers": MARKERS, "events": EVENTS}
_MEASURES = (e.Measured, e.Progress, e.TraceStopped, e.FunctionPrinted)


class TraceWriter:
    """A listener that writes one trace. ``close`` writes the remaining rows."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        """Raises SettingError if the folder cannot be created or is not empty."""
        self._folder = folder
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self._parts = 0
        self._due_us = _PART_US_MIN
        self._latency = LatencyTotals()
        try:
            if folder.exists() and any(folder.iterdir()):
                raise SettingError(
                    f"trace = {folder}: the folder is not empty; name a new one, or remove what it holds"
                )
            for name in TABLES:
                (folder / name).mkdir(parents=True)
            text = json.dumps({"format": FORMAT, **header}, indent=2) + "\n"
            (folder / HEADER).write_text(text, encoding="utf-8")
        except OSError as problem:
            raise SettingError(f"trace = {folder}: {problem.strerror}; name a folder that can be written") from None

    def __call__(self, at_us: int, event: e.Event) -> None:
        """Adds an event, and writes a part if it is due. Raises OSError if the part cannot be written."""
        if isinstance(event, e.Measured):
            for reading in event.readings:
                self._measure(reading)
        elif not isinstance(event, _MEASURES):
            self._rows["events"].append(_event_row(at_us, event))
        if at_us >= self._due_us:
            self._due_us = at_us + min(max(at_us // 20, _PART_US_MIN), _PART_US_MAX)
            self.close()

    def close(self) -> None:
        """Writes the collected rows. Raises OSError."""
        for name, rows in self._rows.items():
            if rows:
                _write(pa.Table.from_pylist(rows, TABLES[name]), self._folder / name, self._parts)
                rows.clear()
        self._parts += 1

    def _measure(self, reading: e.ProcessReading) -> None:
        task = {"at_us": reading.at_us, "vertex": reading.task.vertex, "index": reading.task.index}
        process = task | {"process": reading.process}
        saved = reading.counters.saved_parts
        parts = (saved.open, saved.extent, saved.replay_rows) if saved else (None, None, None)
        process |= zip(_SAVED_PARTS, parts, strict=True)
        counted = {name: getattr(reading.counters, name) for name in READINGS.names if name not in process}
        self._rows["readings"].append(process | counted)
        for latency_us, times in self._latency.new(reading.process, reading.counters.latency).durations():
            self._rows["markers"].append(task | {"latency_us": latency_us, "times": times})


def _event_row(at_us: int, event: e.Event) -> dict[str, Any]:
    row: dict[str, Any] = {"at_us": at_us, "what": type(event).__name__}
    task = getattr(event, "task", None)
    if task is not None:
        row |= {"vertex": task.vertex, "index": task.index}
    for name in ("checkpoint", "duration_ms", "bytes", "rows", "cost_ms"):
        row[name] = getattr(event, name, None)
    attempt = getattr(event, "attempt", None)
    row["attempt"] = None if attempt is None else str(attempt)
    row["detail"] = getattr(event, "reason", getattr(event, "how", None))
    row["requests"] = sum(event.requests.values()) if isinstance(event, CheckpointCompleted) else None
    if isinstance(event, IntervalChosen):
        row |= {"duration_ms": event.interval_s * 1e3, "detail": interval_text(event)}
    if isinstance(event, Finished) and event.stopped:
        row["detail"] = "interrupted"
    return row


def _write(rows: pa.Table, folder: Path, part: int) -> None:
    """Writes a part. Readers ignore the temporary file, whose name begins with a dot."""
    written = folder / f".part-{part:06d}"
    pq.write_table(rows, written)
    os.replace(written, folder / f"part-{part:06d}.parquet")


def read_header(trace: Path) -> dict[str, Any]:
    """The trace's header, which describes its job. Raises SettingError if there is no readable trace."""
    try:
        header: dict[str, Any] = json.loads((trace / HEADER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SettingError(f"{trace} holds no trace: name a folder that `clonos run --trace` has written") from None
    if header.get("format") != FORMAT:
        raise SettingError(f"{trace} is a trace of format {header.get('format')}, this version reads {FORMAT}")
    return header
