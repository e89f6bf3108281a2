"""What a replay starts from and follows: by task, a restart point, and the recorded log from there on (F2).

A recorded interval consists of *legs*, one for each run of the job: a run that resumes may have another parallelism,
and may read sources again that had ended. Between legs, state passes through the checkpoint, as it did then.

The log of a task is found backwards. The record of a snapshot holds the log since the restart point that the task had
then, and the first epoch in it names that restart point. So what was rolled back, or belongs to an aborted checkpoint,
is never met: no snapshot that counts leads to it.

A task starts at its snapshot of the first checkpoint. If a receiver needs frames from before that, which no snapshot
holds, the sender starts at an earlier one; what it then sends twice, receivers ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from clonos_py.checkpoint.line import LineChannel, line_channels
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, RecordTail, StoredChunk, TaskHandle, numbering_of
from clonos_py.process.progress import decoded, progress_of

ReadRecord = Callable[[Sequence[StoredChunk]], Sequence[LogSegment]]
"""Reads pieces of a record, in order."""


class RunNames(NamedTuple):
    """What a run of the job was called: its frame numbering (see OperatorContext), and its own name."""

    numbering: str
    run: str


@dataclass(frozen=True)
class Leg:
    """The part of an interval that one run of the job did."""

    before: Manifest | None
    """The checkpoint at which it begins; None: the beginning of the job."""
    manifests: Sequence[Manifest]
    """Those that the run wrote in the interval, oldest first."""
    resumed: bool
    """Whether the run began with ``before``, which another one had written."""
    tails: Sequence[RecordTail] = ()
    """What processes held when the job failed in this leg, after its last checkpoint."""

    @property
    def description(self) -> Manifest:
        """What the job was like in this leg."""
        return self.tails[0].interval if self.tails else self.manifests[-1]

    @property
    def end(self) -> Manifest | None:
        """The checkpoint at which it ends, or after which the job failed; None: the job failed before its first."""
        return self.manifests[-1] if self.manifests else self.before

    @property
    def names(self) -> RunNames:
        found = self.description
        return RunNames(numbering_of(found.lineage, found.renumberings), found.run)


@dataclass(frozen=True)
class RecordedTask:
    """What one task did in a leg."""

    start: Restore
    """Its restart point."""
    log: Sequence[LogSegment]
    """From there to the end of the leg, without gaps."""
    snapshots: Mapping[int, TaskHandle]
    """By checkpoint: the snapshots that it took in the leg and that count."""


def legs(
    manifests: Sequence[Manifest], first: Manifest | None, last: Manifest | None, tails: Sequence[RecordTail] = ()
) -> list[Leg]:
    """The legs of the interval between two checkpoints. ``manifests``: all that count, oldest first. ``last``: None if
    there is none. ``tails``: what processes held when the job failed after the last one."""
    begin = first.checkpoint if first is not None else 0
    end = last.checkpoint if last is not None else 0
    inside = [manifest for manifest in manifests if begin < manifest.checkpoint <= end]
    found: list[Leg] = []
    before = first
    for run, written in groupby(inside, key=lambda manifest: manifest.run):
        part = list(written)
        found.append(Leg(before, part, before is not None and before.run != run))
        before = part[-1]
    if tails:
        resumed = before is not None and before.run != tails[0].interval.run
        goes_on = found.pop() if found and not resumed else Leg(before, (), resumed)
        found.append(replace(goes_on, tails=tails))
    return found


def tails_after(newest: Manifest | None, tails: Iterable[RecordTail]) -> list[RecordTail]:
    """What processes held when the job last failed, if that was after the checkpoint ``newest`` and before another one
    was complete. It may have failed in the run that wrote ``newest``, or in one that resumed from it, maybe with other
    tasks. The coordinator may not have known yet that ``newest`` was complete."""

    def follows(found: Manifest) -> bool:
        if newest is None:
            return not found.checkpoint
        if found.lineage != newest.lineage or found.generation < newest.generation:
            return False
        return found.checkpoint == newest.checkpoint or (
            found.checkpoint < newest.checkpoint and found.run == newest.run
        )

    following = [tail for tail in tails if follows(tail.interval)]
    last = max((tail.interval.generation for tail in following), default=0)
    return [tail for tail in following if tail.interval.generation == last]


def recorded_tasks(
    plan: PhysicalPlan, leg: Leg, manifests: Sequence[Manifest], read: ReadRecord
) -> dict[TaskId, RecordedTask]:
    """What all tasks did in a leg. ``plan``: of its run. ``manifests``: all that count, oldest first. Raises
    RecordError if the record does not reach so far."""
    if not leg.manifests and (leg.resumed or leg.before is None):
        ended = {task: RecordedTask(start, (), {}) for task, start in _began(plan, leg).items()}
    else:
        assert leg.end is not None
        lineages = {task: _Lineage(task, manifests, leg.end, read) for task in plan.tasks}
        starts = _resumed(plan, leg, lineages) if leg.resumed else _starts(plan, leg, lineages)
        ended = {task: lineages[task].since(starts[task]) for task in plan.tasks}
    return {task: with_tail(task, found, leg.tails) for task, found in ended.items()}


def with_tail(task: TaskId, recorded: RecordedTask, tails: Sequence[RecordTail]) -> RecordedTask:
    """What the task did before and after its last snapshot, as far as a process held it when the job failed.

    A log is held by the process of its task, and by others downstream. Those that had begun later say more. Only a log
    counts that goes on where this snapshot was taken: its first segment names that snapshot, by number and offset."""
    own = max((tail for tail in tails if tail.task == task), key=lambda tail: tail.attempt, default=None)
    holders = [own] if own is not None else sorted(tails, key=lambda tail: tail.attempt)
    held = {segment.start: segment for tail in holders for segment in tail.logs if segment.log == task.log_id}
    epoch, at = _end_of(recorded)
    first = held.get(at)
    if first is None or (first.epoch, first.epoch_start) != (epoch, at):
        return recorded
    log = list(recorded.log)
    incarnation = log[-1].incarnation if log else first.incarnation
    while (segment := held.get(at)) is not None and segment.count and segment.incarnation == incarnation:
        log.append(segment)
        at = segment.stop
    return replace(recorded, log=log)


def _end_of(recorded: RecordedTask) -> tuple[int, int]:
    """The epoch and the offset that begin with the last snapshot of a task, or with its start."""
    if recorded.snapshots:
        checkpoint, handle = max(recorded.snapshots.items())
        return checkpoint, progress_of(handle).log_offset
    progress = recorded.start.progress
    return recorded.start.checkpoint, decoded(progress).log_offset if progress is not None else 0


class _Lineage:
    """The snapshots that lead to one of a task, each found from the record of the one after it."""

    def __init__(self, task: TaskId, manifests: Iterable[Manifest], last: Manifest, read: ReadRecord) -> None:
        self._task, self._read_pieces = task, read
        self._history = {h.checkpoint: h for manifest in manifests for h in manifest.handles if h.task == task}
        """By checkpoint: all snapshots that manifests name, also those that were given up."""
        self._found = [_newest(task, last)]
        """Newest first."""
        self._read: dict[int, Sequence[LogSegment]] = {}
        """By checkpoint of a snapshot: its record."""

    def not_after(self, checkpoint: int) -> TaskHandle | None:
        """The newest snapshot of the lineage that is none of a later checkpoint; None if there is none."""
        while self._found[-1].checkpoint > checkpoint and self._find():
            pass
        return next((handle for handle in self._found if handle.checkpoint <= checkpoint), None)

    def before(self, handle: TaskHandle) -> TaskHandle | None:
        """The snapshot of the lineage before one; None if there is none."""
        return self.not_after(handle.checkpoint - 1)

    def _find(self) -> bool:
        """Finds earlier snapshots. False if the record does not lead to one."""
        at = self._found[-1]
        starts = {segment.epoch: segment.epoch_start for segment in self._record(at) if segment.epoch < at.checkpoint}
        for epoch, offset in sorted(starts.items(), reverse=True):
            handle = self._history.get(epoch)
            if handle is not None and progress_of(handle).log_offset == offset:
                self._found.append(handle)
        return self._found[-1] is not at

    def _record(self, handle: TaskHandle) -> Sequence[LogSegment]:
        if handle.checkpoint not in self._read:
            self._read[handle.checkpoint] = self._read_pieces(handle.record)
        return self._read[handle.checkpoint]

    def since(self, start: Restore) -> RecordedTask:
        """What the task did from its start on. Raises RecordError if not all of it is recorded."""
        self.not_after(start.checkpoint)
        begin = decoded(start.progress).log_offset if start.progress is not None else 0
        passed = {handle.checkpoint: handle for handle in self._found if handle.checkpoint > start.checkpoint}
        found: dict[int, LogSegment] = {}
        for handle in passed.values():
            for segment in self._record(handle):
                if found.setdefault(segment.start, segment) != segment:
                    raise RecordError(f"two records of {self._task} differ at offset {segment.start} of its log")
        log = [segment for offset, segment in sorted(found.items()) if offset >= begin]
        self._check(log, begin, self._history.get(start.checkpoint))
        return RecordedTask(start, log, dict(sorted(passed.items())))

    def _check(self, log: Sequence[LogSegment], begin: int, first: TaskHandle | None) -> None:
        """Raises RecordError unless the log has all of the task's log from ``begin`` to the end of the lineage."""
        record = self._record(first) if first is not None else ()
        incarnation = record[-1].incarnation if record else 0
        at, end = begin, progress_of(self._found[0]).log_offset
        for segment in log:
            if segment.start != at or segment.incarnation != incarnation:
                break
            at = segment.stop
        if at == end or (not log and end <= begin):
            return
        if at > begin or any(segment.incarnation != incarnation for segment in log):
            raise RecordError(
                f"the record of {self._task} has a gap at offset {at} of its log: the task restarted without its log "
                "there; choose an interval that ends before, or begins after"
            )
        raise RecordError(
            f"the record of {self._task} does not lead back from its snapshot {self._found[-1].checkpoint} to the "
            "beginning of the interval: the job ran without `record` then, or manifests are missing; choose an "
            "interval that begins later (`clonos record ls` shows what is kept)"
        )


def _newest(task: TaskId, manifest: Manifest) -> TaskHandle:
    for handle in manifest.tasks:
        if handle.task == task:
            return handle
    raise RecordError(f"checkpoint {manifest.checkpoint} has no snapshot of {task}: it is of a job with other tasks")


# ---- where tasks start


def _restart(handle: TaskHandle | None, closed: Iterable[str]) -> Restore:
    if handle is None:
        return Restore(0)
    operators = {name: [stored] for name, stored in handle.operators.items()}
    return Restore(handle.checkpoint, operators, handle.progress, frames=handle.frames, closed=frozenset(closed))


def _began(plan: PhysicalPlan, leg: Leg) -> dict[TaskId, Restore]:
    """By task: where a run started it that failed before its first checkpoint. On a recovery line, that is the snapshot
    that its log names."""
    completed = CompletedCheckpoint(plan, leg.before, "", leg.description.run)
    starts = {task: completed.restart(task) for task in plan.tasks}
    if leg.before is None or leg.before.coordinated:
        return starts
    for handle in leg.before.earlier:
        if completed.handle(handle.task) is None:
            continue
        earlier = RecordedTask(_restart(handle, leg.description.closed), (), {})
        if with_tail(handle.task, earlier, leg.tails).log:
            starts[handle.task] = earlier.start
    return starts


def _resumed(plan: PhysicalPlan, leg: Leg, lineages: Mapping[TaskId, _Lineage]) -> dict[TaskId, Restore]:
    """By task: where the run that resumed from ``leg.before`` started it: at its restart point in that checkpoint, or,
    on a recovery line, at an earlier snapshot."""
    assert leg.before is not None
    completed = CompletedCheckpoint(plan, leg.before, "", leg.description.run)
    starts = {}
    for task in plan.tasks:
        starts[task], handle = completed.restart(task), completed.handle(task)
        if handle is None or leg.before.coordinated:
            continue
        led_to = lineages[task].not_after(leg.before.checkpoint)
        if led_to is not None and led_to.checkpoint != handle.checkpoint:
            starts[task] = _restart(led_to, leg.description.closed)
    return starts


def _starts(plan: PhysicalPlan, leg: Leg, lineages: Mapping[TaskId, _Lineage]) -> dict[TaskId, Restore]:
    """By task: the snapshot to start from, so that frames that receivers need are stored or sent again."""
    if leg.before is None:
        return {task: Restore(0) for task in plan.tasks}
    starts = {task: lineages[task].not_after(leg.before.checkpoint) for task in plan.tasks}
    channels = line_channels(plan)
    moved = True
    while moved:
        moved = False
        for channel in channels:
            while (handle := starts[channel.sender]) is not None and _lacks(handle, starts[channel.receiver], channel):
                starts[channel.sender] = lineages[channel.sender].before(handle)
                moved = True
    return {task: _restart(handle, leg.description.closed) for task, handle in starts.items()}


def _lacks(sender: TaskHandle, receiver: TaskHandle | None, channel: LineChannel[TaskId]) -> bool:
    """Whether the receiver needs frames from before the sender's start that the sender's snapshot does not hold."""
    needed = progress_of(receiver).covered[channel.input] if receiver is not None else 0
    held = min((part.start for part in sender.frames.get(channel.output, ())), default=None)
    return needed < (progress_of(sender).outputs[channel.output] if held is None else held)
