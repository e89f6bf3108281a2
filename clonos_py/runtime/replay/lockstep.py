"""The replay of one leg, with changed code beside it (F3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos_py.causal.determinants import FrameBatch, InputOrder, TimerFired
from clonos_py.channel.frames import Frame
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import ChannelLimits, RestoreState, SnapshotTaken
from clonos_py.runtime.replay.answers import QuestionMoment, RecordedAnswers
from clonos_py.runtime.replay.correspondence import Place, recorded_vertex
from clonos_py.runtime.replay.counterparts import Counterparts, RecordedSide
from clonos_py.runtime.replay.interval import RecordedTask, RunNames
from clonos_py.runtime.replay.machines import LegReplay, ReplayResult
from clonos_py.runtime.replay.same_reads import AllReads, Reads, heard, repeated
from clonos_py.runtime.replay.sinks import SinkObserver, without_sinks
from clonos_py.runtime.replay.starting_states import Carried
from clonos_py.runtime.replay.watching import Answering, Listening, answered, watched


class Lockstep(LegReplay):
    """Replays the recorded code. Each event is followed by those of its counterparts."""

    def __init__(
        self,
        plan: PhysicalPlan,
        recorded: Mapping[TaskId, RecordedTask],
        store: SnapshotStore,
        names: RunNames,
        limits: ChannelLimits,
        reads: AllReads,
        checkpoints_us: Sequence[tuple[int, int]],
        before: Callable[[TaskId], None] | None = None,
    ) -> None:
        """``checkpoints_us``: when checkpoints were complete, by number, oldest first."""
        self._reads, self._checkpoints_us = reads, checkpoints_us
        self.side = RecordedSide(plan, self.machine, checkpoints_us[0][1])
        self._cuts: list[tuple[TaskId, int, Frame, bool]] = []
        self._stored_frames: list[tuple[Place, Frame]] = []
        self._running = False
        self._counterparts: Counterparts | None = None
        super().__init__(plan, recorded, store, names, limits, before)
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
        reached = super()._event(task)
        if reached is None:
            self.side.events[task] -= 1
            return None
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
        assert self._counterparts is not None
        self._counterparts.follow(task, coming)
        for reads in self._reads.values():
            reads.waiting.clear()
        return reached

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
    ) -> None:
        """``plans``: of the recorded and of the changed job (``unrecorded``). ``observers``: get the rows of sinks.
        ``names``: of the run. ``checkpoints_us``: see Lockstep. ``client``:
        gives the clients of services. ``before`` is called before each recorded event."""
        old, new = (without_sinks(*both) for both in zip(plans, observers, strict=True))
        reads = {v.source.name: Reads(v.source.schemas) for v in old.vertices if v.source is not None}
        self._plans, self._recorded_plan = plans, old
        listening = Listening(record, self._moment, self._reach, {}, {}, {})
        answering = Answering(record, self._moment_of, self._clock_us, client or _no_client, {})
        self._lockstep = Lockstep(
            heard(watched(old, listening), reads), recorded, store, names, limits, reads, checkpoints_us, before
        )
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
            self._counterparts.finish()
            if carried_to is not None:
                carried = Carried(self._plans[1], carried_to, *self._counterparts.end(carried_to))
        finally:
            self._lockstep.close()
            self._counterparts.close()
        return result, carried

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
