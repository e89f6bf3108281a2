"""The replay of one leg, with changed code beside it (F3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.causal.determinants import Determinant, FrameBatch, InputOrder, TimerFired
from clonos_py.channel.frames import Frame
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import RecordError, UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Read
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import ChannelLimits, RestoreState, SnapshotTaken
from clonos_py.runtime.replay.answers import QuestionMoment, RecordedAnswers, UnrecordedQuestionError
from clonos_py.runtime.replay.correspondence import Place, recorded_vertex
from clonos_py.runtime.replay.counterparts import Counterparts, RecordedSide
from clonos_py.runtime.replay.interval import RecordedTask, RunNames
from clonos_py.runtime.replay.machines import LegReplay, ReplayResult
from clonos_py.runtime.replay.same_reads import AllReads, Piece, Reads, heard, repeated
from clonos_py.runtime.replay.sinks import SinkObserver, without_sinks
from clonos_py.runtime.replay.starting_states import Carried
from clonos_py.runtime.replay.watching import Answering, Listening, answered, watched


@dataclass
class ReplayedFailure:
    """How the recorded code failed, and whether the changed code fails in the same event."""

    error: UserCodeError
    changed_too: bool = False


class _FailedEvent(NamedTuple):
    """The event in which a task failed. ``reads``: those of its source in it, by name of the source."""

    task: TaskId
    coming: Sequence[Determinant]
    reads: dict[str, dict[Piece, Read]]


class _RowsOfEvent:
    """The rows that sinks are given in an event of the recorded job. Those of an event count if it is repeated."""

    def __init__(self, observer: SinkObserver) -> None:
        self._observer = observer
        self._given: list[tuple[TaskId, str, pa.RecordBatch]] = []

    def add(self, task: TaskId, sink: str, rows: pa.RecordBatch) -> None:
        self._given.append((task, sink, rows))

    def count(self) -> None:
        for given in self._given:
            self._observer(*given)
        self._given.clear()

    def drop(self) -> None:
        self._given.clear()


class Lockstep(LegReplay):
    """Replays the recorded code. Each event is followed by those of its counterparts.

    An event in which the recorded code fails is followed, too, after all others: the changed code may ask there for
    rows that the recorded code did not come to. An event in which the job ended while it waited for an answer is
    not."""

    def __init__(
        self,
        plan: PhysicalPlan,
        recorded: Mapping[TaskId, RecordedTask],
        store: SnapshotStore,
        names: RunNames,
        limits: ChannelLimits,
        reads: AllReads,
        checkpoints_us: Sequence[tuple[int, int]],
        rows: _RowsOfEvent,
        before: Callable[[TaskId], None] | None = None,
        failed: bool = False,
    ) -> None:
        """``checkpoints_us``: when checkpoints were complete, by number, oldest first. ``rows``: what sinks are
        given."""
        self._reads, self._checkpoints_us, self._rows = reads, checkpoints_us, rows
        self.failure: ReplayedFailure | None = None
        self._failed_events: list[_FailedEvent] = []
        self.side = RecordedSide(plan, self.machine, checkpoints_us[0][1])
        self._cuts: list[tuple[TaskId, int, Frame, bool]] = []
        self._stored_frames: list[tuple[Place, Frame]] = []
        self._running = False
        self._counterparts: Counterparts | None = None
        super().__init__(plan, recorded, store, names, limits, before, failed)
        self._running, self._names = True, names

    def beside(
        self,
        counterparts: Counterparts,
        states: Mapping[TaskId, RestoreState | None],
        frames: Mapping[Place, Sequence[Frame]] | None,
    ) -> None:
        """Starts the tasks of the changed job from these states, with the frames that an earlier leg has left; None:
        with those that were in flight to the recorded ones."""
        self._counterparts = counterparts
        counterparts.begin(states, self._names)
        if frames is not None:
            counterparts.carry_on(frames)
        else:
            for place, frame in self._stored_frames:
                counterparts.stored(place, frame)
        self._stored_frames.clear()

    def moment(self, task: TaskId) -> QuestionMoment:
        """The event that a task performs now, or has performed last."""
        return QuestionMoment(task, self.side.events[task])

    def _event(self, task: TaskId) -> list[TaskId] | None:
        coming = self.machine(task).coming
        self._cuts.clear()
        self.side.begin_event(task)
        try:
            reached = super()._event(task)
        except UserCodeError as error:
            if not self._failed or self.machine(task).replaying:
                raise
            self._break(task)
            self.failure = self.failure or ReplayedFailure(error)
            reached = []
        if reached is None:
            self.side.events[task] -= 1
            self._rows.drop()
            return None
        self._rows.count()
        match coming[0]:
            case InputOrder(channel=channel):
                self.side.take((task, channel), 1)
            case FrameBatch(channel=channel, count=count):
                self.side.take((task, channel), count)
            case TimerFired(at_us=at_us):
                self.side.reach(task, at_us)
        for cut in self._cuts:
            self.side.cut(*cut)
        self.side.end_event(task)
        if self._is_broken(task):
            waiting = {name: dict(reads.waiting) for name, reads in self._reads.items()}
            self._failed_events.append(_FailedEvent(task, coming, waiting))
        else:
            assert self._counterparts is not None
            self._counterparts.follow(task, coming)
        for reads in self._reads.values():
            reads.waiting.clear()
        return reached

    def follow_failures(self) -> bool:
        """Follows the events in which the recorded code failed. False if the changed code does not come to their end:
        it fails, too, or asks what the record does not answer."""
        assert self._counterparts is not None
        for event in self._failed_events:
            assert self.failure is not None
            self.side.cut_now = {}
            for name, reads in self._reads.items():
                reads.waiting = event.reads[name]
            try:
                self._counterparts.follow(event.task, event.coming)
            except UnrecordedQuestionError:
                return False
            except UserCodeError:
                self.failure.changed_too = True
                return False
        return True

    def _deliver(self, sender: TaskId, output: int, frame: Frame) -> TaskId | None:
        receiver = super()._deliver(sender, output, frame)
        if self._running:
            self._cuts.append((sender, output, frame, receiver is not None))
        elif receiver is not None:
            place = self.side.receivers[sender, output]
            self.side.stored(place)
            self._stored_frames.append((place, frame))
        return receiver

    def _compare(self, task: TaskId, taken: SnapshotTaken) -> None:
        super()._compare(task, taken)
        before = [at_us for checkpoint, at_us in self._checkpoints_us if checkpoint < taken.snapshot.checkpoint]
        if before:
            self.side.reach(task, before[-1])


class SideBySide:
    """Recorded and changed code, in one leg."""

    def __init__(
        self,
        plans: tuple[PhysicalPlan, PhysicalPlan],
        recorded: Mapping[TaskId, RecordedTask],
        store: SnapshotStore,
        record: RecordedAnswers,
        observers: tuple[SinkObserver, SinkObserver],
        *,
        names: RunNames,
        limits: ChannelLimits,
        checkpoints_us: Sequence[tuple[int, int]],
        client: Callable[[str], Any] | None = None,
        before: Callable[[TaskId], None] | None = None,
        failed: bool = False,
    ) -> None:
        """``plans``: of the recorded and of the changed job (``unrecorded``). ``observers``: get the rows of sinks.
        ``names``: of the run. ``checkpoints_us``: see Lockstep. ``client``:
        gives the clients of services. ``before`` is called before each recorded event. ``failed``: see LegReplay."""
        rows = _RowsOfEvent(observers[0])
        old, new = (without_sinks(*both) for both in zip(plans, (rows.add, observers[1]), strict=True))
        reads = {v.source.name: Reads(v.source.schemas) for v in old.vertices if v.source is not None}
        self._plans, self._recorded_plan = plans, old
        listening = Listening(record, self._moment, self._reach, {}, {}, {})
        answering = Answering(record, self._moment_of, self._clock_us, client or _no_client, {})
        self._lockstep = Lockstep(
            heard(watched(old, listening), reads), recorded, store, names, limits, reads, checkpoints_us, rows, before,
            failed,
        )  # fmt: skip
        changed = repeated(answered(new, answering), reads)
        self._counterparts = Counterparts(changed, self._lockstep.side, listening, answering, limits)

    def run(
        self,
        states: Mapping[TaskId, RestoreState | None],
        frames: Mapping[Place, Sequence[Frame]] | None = None,
        carried_to: int | None = None,
    ) -> tuple[ReplayResult, Carried | None]:
        """Runs both to the end of the leg. ``states``: from which the tasks of the changed job start. ``frames``: those
        that an earlier leg has left; None if there is none. ``carried_to``: the checkpoint from which a later leg goes
        on. Returns how the recorded code did, and what that leg needs. Raises RecordError where the changed code cannot
        go on, and what the user's code raises."""
        carried = None
        try:
            self._lockstep.beside(self._counterparts, states, frames)
            result = self._lockstep.run()
            if self._lockstep.follow_failures():
                self._counterparts.finish()
            if carried_to is not None:
                carried = Carried(self._plans[1], carried_to, *self._counterparts.end(carried_to))
        finally:
            self._lockstep.close()
            self._counterparts.close()
        return result, carried

    @property
    def failure(self) -> ReplayedFailure | None:
        """How the recorded code failed at the end; None: it did not."""
        return self._lockstep.failure

    def _moment(self, task: TaskId) -> QuestionMoment:
        return self._lockstep.moment(task)

    def _moment_of(self, task: TaskId, operator: str) -> QuestionMoment:
        """The last event of the recorded task with this operator; of any task if there is none."""
        vertex = recorded_vertex(self._recorded_plan, operator)
        if vertex is None or task.index >= vertex.parallelism:
            return self._lockstep.moment(self._recorded_plan.tasks[0])
        return self._lockstep.moment(TaskId(vertex.name, task.index))

    def _reach(self, task: TaskId, time_us: int) -> None:
        self._lockstep.side.reach(task, time_us)

    def _clock_us(self, task: TaskId) -> int:
        return self._counterparts.clock_us(task)


def _no_client(name: str) -> Any:
    raise RecordError(f"service {name!r} cannot be asked here")
