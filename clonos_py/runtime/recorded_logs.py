"""The recorded logs of a job, from checkpoint to checkpoint (F1).

A task's snapshot names the pieces of its log since the restart point before it. So the logs of consecutive snapshots
overlap, or meet. A task may also have gone back behind a snapshot that a manifest named (E9): that snapshot and its log
do not count. A replay goes from one counting snapshot of a task to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.process.progress import progress_of


class CountingSnapshot(NamedTuple):
    """A snapshot of a task that counts, and the first manifest in which it is the newest of its task."""

    handle: TaskHandle
    manifest: Manifest

    @property
    def log_offset(self) -> int:
        """The offset of the task's log at which it was taken."""
        return progress_of(self.handle).log_offset


class RecordGapError(Exception):
    """The record of a task has a gap before a snapshot. ``explained``: it restarted there without its log."""

    def __init__(self, task: TaskId, before: int, after: int, reason: str, explained: bool = False) -> None:
        super().__init__(f"the record of {task} has a gap between checkpoints {before} and {after}: {reason}")
        self.task, self.before, self.after, self.explained = task, before, after, explained


def sections(manifests: Iterable[Manifest]) -> list[list[Manifest]]:
    """The manifests, oldest first, divided where the tasks of a job begin with new numbers: at another parallelism, or
    when all input had ended. Those that are not recorded are left out, and divide, too."""
    found: list[list[Manifest]] = []
    last: Manifest | None = None
    for manifest in manifests:
        if manifest.recorded is not None:
            if last is None or _numbers(last) != _numbers(manifest):
                found.append([])
            found[-1].append(manifest)
        last = manifest if manifest.recorded is not None else None
    return found


def _numbers(manifest: Manifest) -> tuple[str, int, dict[str, int]]:
    return manifest.lineage, manifest.renumberings, manifest.parallelism


def counting_snapshots(section: Iterable[Manifest], task: TaskId) -> list[CountingSnapshot]:
    """The snapshots of a task that count, oldest first: all but those that it went back behind."""
    found: list[CountingSnapshot] = []
    for manifest in section:
        for handle in manifest.tasks:
            if handle.task == task:
                while found and found[-1].handle.checkpoint > handle.checkpoint:
                    found.pop()
                if not found or found[-1].handle.checkpoint < handle.checkpoint:
                    found.append(CountingSnapshot(handle, manifest))
    return found


def usable_bases(section: Sequence[Manifest], bases: Iterable[Manifest]) -> list[Manifest]:
    """The bases in a section from which a replay can go on: those of whose snapshots all count."""
    numbers = {manifest.checkpoint for manifest in section}
    tasks = {handle.task for manifest in section for handle in manifest.tasks}
    counting = {(task, snapshot.handle.checkpoint) for task in tasks for snapshot in counting_snapshots(section, task)}
    return [
        base
        for base in bases
        if base.checkpoint in numbers and all((handle.task, handle.checkpoint) in counting for handle in base.tasks)
    ]


def check_no_restart(before: CountingSnapshot, after: CountingSnapshot) -> None:
    """Raises RecordGapError if the task has restarted without its log between two counting snapshots."""
    if after.handle.without_log >= before.handle.checkpoint:
        reason = "it has restarted there without its log"
        raise RecordGapError(after.handle.task, before.handle.checkpoint, after.handle.checkpoint, reason, True)


def log_between(before: CountingSnapshot, after: CountingSnapshot, record: Sequence[LogSegment]) -> list[LogSegment]:
    """The log of a task from one counting snapshot to the next. ``record``: the segments that ``after`` names. Raises
    RecordGapError if the log is not complete, or if the task has restarted without it."""
    check_no_restart(before, after)
    task, numbers = after.handle.task, (before.handle.checkpoint, after.handle.checkpoint)
    start, stop = before.log_offset, after.log_offset
    found = [segment for segment in record if segment.start >= start]
    reached = start
    for segment in found:
        if segment.start != reached:
            raise RecordGapError(task, *numbers, f"determinants {reached} to {segment.start} are missing")
        reached = segment.stop
    if reached != stop or not found:
        raise RecordGapError(task, *numbers, f"it ends at {reached}, the snapshot was taken at {stop}")
    return found
