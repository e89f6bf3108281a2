"""A replay for scripts and notebooks: its rows and its determinants as Arrow tables (F2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Determinant, length
from clonos_py.dsl.job import Job
from clonos_py.dsl.loading import load_job_file
from clonos_py.model.errors import GraphError, SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.runtime.replay.interval import RecordedTask
from clonos_py.runtime.replay.run import ReplayRange, ReplayReport, interval_texts, time_of_day_us
from clonos_py.runtime.replay.run import replay as replayed

_COLUMNS: list[pa.Field[Any]] = [
    pa.field("task", pa.string()),
    pa.field("checkpoint", pa.int64()),
    pa.field("offset", pa.int64()),
    pa.field("kind", pa.string()),
    pa.field("count", pa.int64()),
    pa.field("what", pa.string()),
]
_DETERMINANTS = pa.schema(_COLUMNS)


class ReplayedInterval:
    """What a replay has shown."""

    def __init__(self, report: ReplayReport, rows: Mapping[str, pa.Table], determinants: pa.Table) -> None:
        self.report = report
        self.rows = rows
        """By sink: the rows that it was given, in the order of the replay."""
        self.determinants = determinants
        """The log of all tasks: ``task``; ``checkpoint``, the last one that the task had taken; ``offset`` in its log;
        ``kind``; ``count``, the number of equal ones in a row; ``what`` as text."""

    @property
    def identical(self) -> bool:
        """Whether state, progress and checksums of outputs were those of the record at every checkpoint."""
        return not self.report.differences

    def __repr__(self) -> str:
        same = "identical" if self.identical else f"{len(self.report.differences)} snapshots differ"
        rows = ", ".join(f"{sink}: {table.num_rows:,} rows" for sink, table in self.rows.items()) or "no rows"
        return f"<replay to {interval_texts(self.report)[1]}: {same}; {rows}>"


def replay(
    job: Job | str | PathLike[str],
    checkpoints: str | PathLike[str],
    *,
    at: str | datetime | None = None,
    checkpoint: int | None = None,
    until: int | str | datetime | None = None,
    task: str | Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
) -> ReplayedInterval:
    """See ``dsl/replaying.py``."""
    if not isinstance(job, Job):
        job = load_job_file(str(job)).job(dict(parameters or {}))
    elif parameters:
        raise GraphError("parameters are for a job file: this job is made already")
    if at is not None and checkpoint is not None:
        raise SettingError("at= and checkpoint= both say where to begin: omit one")
    chosen = ReplayRange(
        at_us=None if at is None else time_of_day_us(at),
        checkpoint=checkpoint,
        until_us=None if until is None or isinstance(until, int) else time_of_day_us(until),
        until=until if isinstance(until, int) else None,
    )
    rows: dict[str, list[pa.RecordBatch]] = {}
    logs: list[pa.Table] = []

    def add(of_task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
        rows.setdefault(sink, []).append(batch)

    def leg(found: Mapping[TaskId, RecordedTask]) -> None:
        logs.extend(determinants_of(one, recorded.log) for one, recorded in found.items())

    names = (task,) if isinstance(task, str) else tuple(task)
    report = replayed(job, str(checkpoints), chosen, add, tasks=names, leg_begun=leg)
    tables = {sink: pa.Table.from_batches(batches) for sink, batches in sorted(rows.items())}
    return ReplayedInterval(report, tables, pa.concat_tables([_DETERMINANTS.empty_table(), *logs]))


def determinants_of(task: TaskId, log: Sequence[LogSegment]) -> pa.Table:
    """The determinants in a part of a task's log that begins with an epoch."""
    columns: dict[str, list[object]] = {name: [] for name in _DETERMINANTS.names}
    codec = LogCodec(log[0].epoch) if log else LogCodec()
    for segment in log:
        at = segment.start
        for determinant in codec.load(segment):
            shown = str(task), segment.epoch, at, type(determinant).__name__, length(determinant), _text(determinant)
            for name, value in zip(columns, shown, strict=True):
                columns[name].append(value)
            at += length(determinant)
    return pa.table(columns, schema=_DETERMINANTS)


def _text(determinant: Determinant) -> str:
    fields = zip(determinant.__struct_fields__, msgspec.structs.astuple(determinant), strict=True)
    return ", ".join(f"{name}={_shortened(value)}" for name, value in fields)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
