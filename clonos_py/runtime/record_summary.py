"""What the record of a job holds, in figures: read from manifests alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from clonos_py.checkpoint.layout import Location
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest, RecordTail
from clonos_py.process.progress import progress_of
from clonos_py.runtime.recorded_logs import (
    RecordGapError,
    check_no_restart,
    counting_snapshots,
    sections,
    usable_bases,
)
from clonos_py.runtime.replay.interval import tails_after


@dataclass(frozen=True)
class TaskRecord:
    """The log of one task: the number of its determinants, and the bytes that they take in storage."""

    task: str
    determinants: int
    log_bytes: int


@dataclass(frozen=True)
class RecordPeriod:
    """A part of the record in which the tasks of the job are the same. Times are milliseconds since 1970, UTC."""

    from_ms: int
    """When its first base was complete; without a base, its first checkpoint."""
    until_ms: int
    checkpoints: int
    bases_ms: Sequence[int]
    """When the checkpoints were complete from which a replay can start."""
    state_bytes: int
    """The state of the bases; what several have in common counts once."""
    parallelism: dict[str, int]
    runs: int
    """The number of runs of the job that wrote it."""
    tasks: Sequence[TaskRecord]
    gaps: Sequence[str]

    @property
    def log_bytes(self) -> int:
        return sum(task.log_bytes for task in self.tasks)

    @property
    def determinants(self) -> int:
        return sum(task.determinants for task in self.tasks)


@dataclass(frozen=True)
class RecordedFailure:
    """What is kept of the time after the last checkpoint in which the job failed."""

    interval: Manifest
    """See ``RecordTail``."""
    determinants: int
    tasks: Sequence[str]
    """Those of which anything is kept."""


def recorded_failure(newest: Manifest | None, tails: Iterable[RecordTail]) -> RecordedFailure | None:
    """The failure after the checkpoint ``newest``; None if the job did not fail after it."""
    following = tails_after(newest, tails)
    if not following:
        return None
    held: dict[str, dict[int, int]] = {}
    for tail in following:
        for segment in tail.logs:
            held.setdefault(str(segment.log), {})[segment.start] = segment.count
    return RecordedFailure(following[0].interval, sum(sum(log.values()) for log in held.values()), sorted(held))


def record_periods(manifests: Iterable[Manifest], bases: Sequence[Manifest]) -> list[RecordPeriod]:
    """The periods of a record, oldest first. ``manifests``: those that count; ``bases``: see ``SnapshotStore``."""
    first = bases[0].checkpoint if bases else 0
    found = sections(manifest for manifest in manifests if manifest.checkpoint >= first)
    return [_period(section, bases) for section in found]


def _period(section: Sequence[Manifest], bases: Sequence[Manifest]) -> RecordPeriod:
    own = usable_bases(section, bases)
    times = [_completed_ms(base) for base in own]
    tasks = [handle.task for handle in section[-1].tasks]
    return RecordPeriod(
        from_ms=times[0] if times else _completed_ms(section[0]),
        until_ms=_completed_ms(section[-1]),
        checkpoints=len(section),
        bases_ms=times,
        state_bytes=_state_bytes(own),
        parallelism=dict(section[-1].parallelism),
        runs=len({manifest.run for manifest in section}),
        tasks=[_task(section, task) for task in tasks],
        gaps=sorted({gap for task in tasks for gap in _gaps(section, task)}),
    )


def _completed_ms(manifest: Manifest) -> int:
    return manifest.recorded.completed_ms if manifest.recorded is not None else 0


def _state_bytes(bases: Iterable[Manifest]) -> int:
    stored = {location for base in bases for handle in base.handles for location in handle.locations}
    return sum(Location.parse(location).size_bytes for location in stored)


def _task(section: Sequence[Manifest], task: TaskId) -> TaskRecord:
    snapshots = counting_snapshots(section, task)
    pieces = {piece.location: piece.size_bytes for found in snapshots for piece in found.handle.record}
    offsets = [progress_of(found.handle).log_offset for found in (snapshots[0], snapshots[-1])]
    return TaskRecord(str(task), offsets[1] - offsets[0], sum(pieces.values()))


def _gaps(section: Sequence[Manifest], task: TaskId) -> Iterator[str]:
    for before, after in pairwise(counting_snapshots(section, task)):
        try:
            check_no_restart(before, after)
        except RecordGapError as gap:
            yield str(gap)
