"""Replays a leg of an interval: the tasks of a job in one thread, each with its recorded log, and nothing live (F2).

A task performs the events of its log in their order. An event that takes frames waits until its sender, which replays,
too, has cut them. The task that has got frames goes on first, so few frames wait. Sources read what they have read
before. Every question to the outside is answered from the log, and sinks write nothing: what they are given is passed
to an observer.

A replay ends with the logs. Where tasks take snapshots alone, the end of the interval is not a consistent cut: a task
whose next frames no sender has cut in the interval ends before its last snapshot.

At each snapshot of the record, the state, progress and checksums of the task are compared with what was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from clonos_py.channel.frames import Frame
from clonos_py.channel.retained import frame_of
from clonos_py.checkpoint.frames import between
from clonos_py.checkpoint.line import line_channels
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import DivergenceError, EndOfRecordError, RecordError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrames
from clonos_py.process.contract import Begin, ChannelLimits, Deliver, Produced, RestoreState, SnapshotTaken
from clonos_py.process.progress import decoded
from clonos_py.protocols.known import protocol_of
from clonos_py.runtime.replay.comparison import compared
from clonos_py.runtime.replay.environment import ReplayEnvironment
from clonos_py.runtime.replay.interval import RecordedTask, RunNames
from clonos_py.task.machine import TaskMachine

_ATTEMPT = Attempt(0, 0)

_Place = tuple[TaskId, int]
"""A task, and one of its input or output channels."""


@dataclass
class ReplayResult:
    """What a replay has done."""

    events: int = 0
    """The number of events that the tasks have performed."""
    snapshots: int = 0
    """The number of snapshots that were compared and are equal."""
    differences: list[str] = field(default_factory=list)
    """One line for each snapshot that differs: task, checkpoint, what differs."""
    incomplete: list[TaskId] = field(default_factory=list)
    """The tasks that end before their last snapshot, since they took frames that were cut after the interval, or in the
    middle of an event, with an answer that the job did not get."""


class _Task:
    """One task that replays."""

    def __init__(self, machine: TaskMachine, recorded: RecordedTask) -> None:
        self.machine, self.recorded = machine, recorded
        self.broken = False
        """Whether the job failed in the middle of the task's last event, or while it waited there for an answer."""

    @property
    def done(self) -> bool:
        return self.broken or not self.machine.replaying


class LegReplay:
    """The replay of one leg."""

    def __init__(
        self,
        plan: PhysicalPlan,
        recorded: Mapping[TaskId, RecordedTask],
        store: SnapshotStore,
        names: RunNames,
        limits: ChannelLimits,
        before: Callable[[TaskId], None] | None = None,
        failed: bool = False,
        delivered: Callable[[TaskId, int, Frame], None] | None = None,
    ) -> None:
        """``plan``: with sinks that write nothing (``replay/sinks.py``). ``names``: of the run. ``before``
        is called before each event of a task, ``delivered`` for each frame with its sender and output channel.
        ``failed``: the job has failed at the end of the leg, so that tasks end where what was held of logs and frames
        ends."""
        self._plan, self._store, self._failed = plan, store, failed
        self._before, self._delivered = before, delivered
        self.result = ReplayResult()
        channels = line_channels(plan)
        self._receiver: dict[_Place, _Place] = {(c.sender, c.output): (c.receiver, c.input) for c in channels}
        self._expected: dict[_Place, int] = {}
        """By input channel: the frame that the task takes next, of those not delivered."""
        self._tasks: dict[TaskId, _Task] = {}
        side = protocol_of(plan).task
        for task, found in recorded.items():
            environment = ReplayEnvironment(lambda: store, task)
            self._tasks[task] = _Task(TaskMachine(plan, task, environment, side, limits=limits), found)
        for task, replayed in self._tasks.items():
            self._restore(task, replayed)
        for task, replayed in self._tasks.items():
            self._deliver_stored(task, replayed.recorded.start)
        for replayed in self._tasks.values():
            log = replayed.recorded.log
            replayed.machine.offer(Begin(_ATTEMPT, log, (), names.numbering, at_landmark=False, run=names.run))

    def _restore(self, task: TaskId, replayed: _Task) -> None:
        start = replayed.recorded.start
        progress = decoded(start.progress) if start.progress is not None else None
        for number in range(len(self._plan.inputs[task])):
            self._expected[task, number] = progress.covered[number] if progress is not None else 0
        if not start.checkpoint:
            return
        sinks = {operator.name for operator in self._plan.by_name[task.vertex].operators if operator.sink}
        states = {
            name: [self._store.read(handle) for handle in handles]
            for name, handles in start.operators.items()
            if name not in sinks
        }
        state = RestoreState(
            start.checkpoint, states, progress, closed=start.closed, counts=start.counts, metrics=start.metrics
        )
        replayed.machine.offer(state)

    def _deliver_stored(self, task: TaskId, start: Restore) -> None:
        """Delivers the frames that were in flight behind a snapshot."""
        for output, parts in start.frames.items():
            schema = self._plan.edges[self._plan.outputs[task][output].edge].schema
            for frame in self._stored(parts, schema):
                self._deliver(task, output, frame)

    def _stored(self, parts: list[StoredFrames], schema: pa.Schema) -> Iterator[Frame]:
        runs = self._store.read_frames({part.location for part in parts})
        for part in parts:
            run = between(runs[part.location], part)
            for record, body in zip(run.records, run.bodies, strict=True):
                frame = frame_of(record)
                rows = pa.ipc.read_record_batch(body, schema) if body is not None else None
                yield frame if rows is None else _with_rows(frame, rows)

    def run(self) -> ReplayResult:
        """Replays until the logs are used up. Raises DivergenceError where the code asks or does something else than
        the record has, and the errors of the user's code."""
        waiting = [task for task in reversed(self._plan.tasks) if task in self._tasks]
        while waiting:
            task = waiting[-1]
            reached = self._event(task)
            if reached is None:
                waiting.pop()
            else:
                waiting.extend(reached)
        self._check_end()
        self.close()
        return self.result

    def close(self) -> None:
        for replayed in self._tasks.values():
            if replayed.broken:
                replayed.machine.abandon()
            else:
                replayed.machine.close()

    def abandon(self) -> None:
        """After an error: closes sources, and no operators, as where a task has failed."""
        for replayed in self._tasks.values():
            replayed.machine.abandon()

    def machine(self, task: TaskId) -> TaskMachine:
        return self._tasks[task].machine

    def _event(self, task: TaskId) -> list[TaskId] | None:
        """Performs the next event of a task, and returns the tasks that have got frames by it. None if there is no
        event left, or if it has to wait for frames."""
        replayed = self._tasks[task]
        if replayed.done:
            return None
        if self._before is not None:
            self._before(task)
        try:
            outcome = replayed.machine.step(0)
        except EndOfRecordError:
            if not self._failed or replayed.machine.replaying:
                raise
            self._break(task)
            return None
        if outcome.wake_us is not None:
            return None
        self.result.events += 1
        reached: list[TaskId] = []
        for event in outcome.events:
            if isinstance(event, Produced):
                reached += [to for output, frame in event.frames if (to := self._deliver(task, output, frame))]
            elif isinstance(event, SnapshotTaken):
                self._compare(task, event)
        return list(dict.fromkeys(reached))

    def _break(self, task: TaskId) -> None:
        """The task ends in the middle of an event."""
        self._tasks[task].broken = True
        self.result.incomplete.append(task)

    def _is_broken(self, task: TaskId) -> bool:
        return self._tasks[task].broken

    def _deliver(self, sender: TaskId, output: int, frame: Frame) -> TaskId | None:
        """Passes a frame to its receiver, which is returned. None if the receiver has it, or is not replayed."""
        if self._delivered is not None:
            self._delivered(sender, output, frame)
        receiver, number = self._receiver[sender, output]
        if receiver not in self._tasks:
            return None
        if frame.seq < self._expected[receiver, number]:
            return None
        if frame.seq > self._expected[receiver, number]:
            raise RecordError(
                f"{receiver} needs frame {self._expected[receiver, number]} of {sender}, which is neither stored nor "
                "recorded; choose an interval that begins earlier"
            )
        self._expected[receiver, number] = frame.seq + 1
        replayed = self._tasks[receiver]
        replayed.machine.offer(Deliver(number, frame))
        return receiver

    def _compare(self, task: TaskId, taken: SnapshotTaken) -> None:
        handle = self._tasks[task].recorded.snapshots.get(taken.snapshot.checkpoint)
        if handle is None:
            return
        found = compared(self._plan, taken.snapshot, taken.progress, handle, self._store)
        if found:
            self.result.differences.append(f"{task} at checkpoint {handle.checkpoint}: {', '.join(found)}")
        else:
            self.result.snapshots += 1

    def _check_end(self) -> None:
        for task, replayed in self._tasks.items():
            if replayed.done:
                continue
            if self._plan.protocol.coordinated and not self._failed:
                raise DivergenceError(
                    f"{task} waits for frames that no task before it has sent in the recorded interval: "
                    "the code has changed, or an input has"
                )
            self.result.incomplete.append(task)


def _with_rows(frame: Frame, rows: pa.RecordBatch) -> Frame:
    return Frame(
        frame.seq, frame.kind, frame.epoch, frame.watermark, frame.idle, frame.checkpoint, rows, 0, frame.stamp
    )
