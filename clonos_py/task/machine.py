"""The task: a state machine that owns gate and operators and does no I/O (D4, D8).

    STANDBY --Begin--> REPLAYING --log used up--> RUNNING --all input ended--> FINISHED
       any state --error--> FAILED (by the driver, with the error that ``step`` raised)

``offer`` hands it what the link received; ``step`` performs exactly one event and gives what came of it. A running
task chooses the event and logs the choice; a replaying task is told by the log and waits for just that event. A
FINISHED task still takes part in checkpoints.

Invariants, asserted:
- frames and the determinants they depend on leave in the same ``Produced``, determinants first;
- a replay ends exactly where its log ends, and makes no live choice before;
- a snapshot is taken with nothing pending in the outputs.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from clonos_py.causal.determinants import (
    Abort,
    Determinant,
    Landmark,
    Linger,
    Merged,
    Order,
    SourceEnd,
    SourceIdle,
    SourceRead,
    TimerFired,
    Trigger,
)
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import LogWriter
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.columns.views import concat
from clonos_py.model.errors import DivergenceError, ProtocolError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import End, Read, Wait
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.times import MAX_TIME
from clonos_py.task.chain import Chain
from clonos_py.task.context import Ports, Shared
from clonos_py.task.events import (
    AbortCall,
    Begin,
    Deliver,
    Entered,
    FromTask,
    MayProduce,
    Outcome,
    Produced,
    Regenerate,
    RegenerateBelow,
    Renumber,
    TakeState,
    TaskState,
    Took,
    ToTask,
    TriggerCall,
)
from clonos_py.task.inputs import Inputs
from clonos_py.task.landmarks import Landmarks
from clonos_py.task.outputs import Outputs
from clonos_py.task.reader import Reader
from clonos_py.task.regeneration import Regeneration
from clonos_py.task.sightings import Sightings
from clonos_py.task.snapshotting import Snapshotting


class TaskMachine:
    """One process's task, active or standing by."""

    def __init__(
        self, plan: PhysicalPlan, task: TaskId, ports: Ports, linger_us: int = 10_000, frames_merged: int = 8
    ) -> None:
        """``frames_merged``: at most so many waiting frames are taken together."""
        self.task, self.state = task, TaskState.STANDBY
        self._events: list[FromTask] = []
        self._ports, self._linger_us, self._frames_merged = ports, linger_us, frames_merged
        vertex = plan.by_name[task.vertex]
        self._gaps = plan.gaps
        self._writer = LogWriter(plan.tasks.index(task), keeps=plan.logged(task))
        self._gate = Gate(self._writer)
        self._shared = Shared(task, vertex.parallelism, plan.groups(task), plan.key_groups, self._gate, ports)
        self._outputs = Outputs(plan, task)
        self._chain = Chain(plan, task, self._shared, self._outputs)
        self._input_edges = [plan.edges[channel.edge] for channel in plan.inputs[task]]
        self._inputs = Inputs(len(self._input_edges))
        self._reader = Reader(vertex.source, task.index, vertex.parallelism) if vertex.source else None
        self._snapshotting = Snapshotting(
            self._shared, self._writer, self._inputs, self._chain, self._outputs, self._reader
        )
        regenerates = vertex.regenerates and plan.sharing_depth != 0
        self._landmarks = Landmarks(self._gate, self._snapshotting) if regenerates else None
        self._regeneration = Regeneration(partial(TaskMachine, plan, task, ports, linger_us, frames_merged))
        sinks = any(operator.sink for operator in vertex.operators)
        self._sightings = Sightings(self._shared, self._outputs, sinks, self._events.append)
        self._calls: deque[TriggerCall | AbortCall] = deque()
        self._may_produce = True
        self._linger_at: int | None = None
        self._aborted: set[int] = set()
        self._ended = False
        self._others = 0
        self._read_at_us = 0
        self._take_state(TakeState(0, {}, None))

    # ---- what the link says

    def offer(self, item: ToTask) -> None:
        """Raises ProtocolError when the item cannot be right in this state."""
        match item:
            case Deliver(index, frame):
                self._inputs.offer(index, frame)
            case Renumber(index, next_seq):
                self._inputs.restart(index, next_seq)
            case TriggerCall() | AbortCall():
                self._calls.append(item)
            case MayProduce(allowed):
                self._may_produce = allowed
            case Regenerate() | RegenerateBelow():
                self._regeneration.take(item)
            case TakeState():
                if self.state is not TaskState.STANDBY:
                    raise ProtocolError(f"{self.task} is {self.state.value} and cannot take other state")
                self._take_state(item)
            case Begin():
                self._begin(item)

    def _take_state(self, item: TakeState) -> None:
        self._snapshotting.restore(item)
        progress = item.progress
        self._ended, self._others = (progress.finished, progress.others) if progress else (False, 0)

    def _begin(self, item: Begin) -> None:
        if self.state is not TaskState.STANDBY:
            raise ProtocolError(f"{self.task} is {self.state.value} and cannot begin as attempt {item.attempt}")
        if self._gaps and self._reader:
            self._reader.skip(self._gate.pass_over(item.log))
        elif self._landmarks is None:
            self._gate.load(item.log)
        elif went_on := self._landmarks.enter(item.log, item.before, self._take_state):
            self._events.append(went_on)
        self._calls.extend(AbortCall(checkpoint) for checkpoint in item.aborted)
        self._enter(TaskState.REPLAYING)
        self._settle()

    @property
    def replaying(self) -> bool:
        """Whether the next event is one of the log."""
        return self._gate.replaying

    def _enter(self, state: TaskState) -> None:
        self.state = state
        self._events.append(Entered(state, self._sightings.rows_replayed))

    # ---- one event

    def step(self, now_us: int) -> Outcome:
        """Performs the next event, if there is one. Raises what the event raised; the task has then failed."""
        if self.state not in (TaskState.REPLAYING, TaskState.RUNNING, TaskState.FINISHED):
            return self._outcome(MAX_TIME)
        worked = self._replay_event() if self._gate.replaying else self._live_event(now_us)
        self._settle()
        self._hand_over()
        if (regenerated := self._regeneration.step()) is not None:
            self._events += [regenerated] if regenerated.frames else []
            worked = True
        if worked:
            self._arm_linger(now_us)
            return self._outcome(None)
        return self._outcome(MAX_TIME if self._gate.replaying else self._wake_us(now_us))

    def _outcome(self, wake_us: int | None) -> Outcome:
        events = self._events[:]
        self._events.clear()
        return Outcome(events, wake_us)

    def _settle(self) -> None:
        """The replay's end, and the end of all input, change the state."""
        if self.state is TaskState.REPLAYING and not self._gate.replaying:
            self._enter(TaskState.RUNNING)
        if self.state is TaskState.RUNNING and self._ended:
            self._enter(TaskState.FINISHED)

    def _hand_over(self) -> None:
        frames = self._outputs.take()
        segment = self._writer.cut() if frames or self._writer.full else None
        if segment or frames:
            self._events.append(Produced(segment, frames))
            self._sightings.cut(sum(frame.rows.num_rows for _, frame in frames if frame.rows is not None))
        self._sightings.counters()

    def _arm_linger(self, now_us: int) -> None:
        if not self._outputs.waiting:
            self._linger_at = None
        elif self._linger_at is None:
            self._linger_at = now_us + self._linger_us

    def _wake_us(self, now_us: int) -> int:
        times = [self._linger_at, self._shared.timers.next_us, self._read_at_us if self._may_read() else None]
        if self._reader:
            times.append(self._reader.next_idle_us)
        return min((t for t in times if t is not None), default=MAX_TIME)

    def _may_read(self) -> bool:
        return self._reader is not None and not self._ended and self._may_produce

    # ---- replaying: the log says what comes next

    def _replay_event(self) -> bool:
        expected = self._gate.peek()
        if isinstance(expected, Order) and not self._inputs.ready(expected.channel):
            return False
        if isinstance(expected, Merged) and not self._inputs.ready(expected.channel, expected.count):
            return False
        self._gate.take()
        match expected:
            case Order(channel=channel):
                self._take_frames(channel, 1)
            case Merged(channel=channel, count=count):
                self._take_frames(channel, count)
            case SourceRead(partition=partition, start=start, stop=stop, checksum=checksum):
                self._reread(partition, start, stop, checksum)
            case Landmark() if self._landmarks:
                self._landmarks.compare(expected, self._others, self._ended, self._ports.now_us())
            case _:
                assert expected is not None
                self._perform(expected)
        return True

    def _reread(self, partition: int, start: int, stop: int, checksum: int) -> None:
        assert self._reader is not None
        self._admit(self._reader.reread(partition, start, stop, checksum), self._ports.now_us())

    # ---- running: the task chooses, and logs the choice

    def _live_event(self, now_us: int) -> bool:
        if self._landmarks and self._landmarks.due(now_us):
            self._landmarks.log(self._others, self._ended, now_us)
            return True
        while self._calls:
            if self._live_call(self._calls.popleft()):
                return True
        if (timer := self._shared.timers.due(now_us)) is not None:
            return self._decide(TimerFired(timer[1], timer[0]))
        if self._linger_at is not None and self._linger_at <= now_us:
            self._linger_at = None
            return self._outputs.waiting and self._decide(Linger())
        if self._reader and (partition := self._reader.due_idle(now_us)) is not None:
            return self._decide(SourceIdle(partition))
        if self._may_produce and (channel := self._inputs.choose()) is not None:
            count = self._inputs.mergeable(channel, self._frames_merged, self._input_edges[channel].merge_rows)
            self._gate.record(Order(channel, 1) if count == 1 else Merged(channel, count))
            self._take_frames(channel, count)
            return True
        return self._may_read() and self._poll(now_us)

    def _live_call(self, call: TriggerCall | AbortCall) -> bool:
        """Whether the call changes anything; only then it is an event."""
        if call.checkpoint <= self._outputs.epoch or call.checkpoint in self._aborted:
            return False
        return self._decide((Abort if isinstance(call, AbortCall) else Trigger)(call.checkpoint))

    def _decide(self, determinant: Determinant) -> bool:
        self._gate.record(determinant)
        self._perform(determinant)
        return True

    def _poll(self, now_us: int) -> bool:
        assert self._reader is not None
        match self._reader.poll(now_us):
            case Read() as read:
                self._gate.record(SourceRead(read.partition, read.start, read.stop, read.checksum))
                self._admit(read, now_us)
                return True
            case Wait(until):
                self._read_at_us = until
                return False
            case End():
                return self._decide(SourceEnd())

    # ---- what events do, live and replayed alike

    def _perform(self, determinant: Determinant) -> None:
        self._others += 1
        self._shared.frame = (-1, self._others)
        match determinant:
            case TimerFired(operator=operator, at_us=at_us):
                self._shared.timers.remove(operator, at_us)
                self._chain.fire(operator, at_us)
            case Linger():
                self._outputs.flush()
            case Trigger(checkpoint=checkpoint):
                self._snapshot(checkpoint)
            case Abort(checkpoint=checkpoint):
                self._abort(checkpoint)
            case SourceIdle(partition=partition):
                assert self._reader is not None
                self._reader.fall_idle(partition)
                self._outputs.idle = self._reader.idle
                self._chain.advance(self._reader.watermark)
            case SourceEnd():
                assert self._reader is not None
                self._reader.ended = True
                self._finish()
            case _:
                raise DivergenceError(f"{self.task} is to replay {determinant} here, where no operator asks for it")

    def _take_frames(self, channel: int, count: int) -> None:
        """Several frames are data all, and their rows one batch."""
        frames = [self._inputs.take(channel) for _ in range(count)]
        frame = frames[-1]
        self._events.append(Took(channel, frame.seq + 1))
        self._shared.frame = (channel, frames[0].seq)
        if batches := [f.rows for f in frames if f.rows is not None]:
            rows = concat(batches)
            self._sightings.took(rows.num_rows, self._chain.watermark, self.state is TaskState.REPLAYING)
            self._chain.enter(self._input_edges[channel].id, rows)
        for taken in frames:
            self._sightings.marker(taken.marker_us, channel, taken.seq)
            self._inputs.observe(channel, taken)
        match frame.kind:
            case FrameKind.DATA:
                self._follow_inputs()
            case FrameKind.BARRIER:
                self._follow_inputs()
                self._barrier(channel, frame)
            case FrameKind.END:
                if self._inputs.end(channel):
                    self._finish()
                else:
                    self._follow_inputs()
            case FrameKind.LOG_ONLY:
                raise ProtocolError("a log-only frame is for the link, not for the task")

    def _follow_inputs(self) -> None:
        self._outputs.idle = self._inputs.idle
        self._chain.advance(self._inputs.watermark)

    def _admit(self, read: Read, now_us: int) -> None:
        assert self._reader is not None
        self._others += 1
        self._shared.frame = (-1, self._others)
        rows = sum(r.num_rows for r in read.rows if r is not None)
        events = read.events if read.events >= 0 else rows
        self._sightings.took(events, self._chain.watermark, self.state is TaskState.REPLAYING)
        self._outputs.idle = False
        for port, batch in enumerate(read.rows):
            if batch is not None:
                self._chain.source_port.emit(batch, port)
        self._reader.accept(read, now_us)
        self._chain.advance(self._reader.watermark)
        self._sightings.source_marker(now_us, read.due_us)
        if self._landmarks:
            self._landmarks.read()

    def _finish(self) -> None:
        self._outputs.idle = False
        self._chain.end()
        self._shared.timers.clear()
        self._outputs.close_with(FrameKind.END)
        self._ended = True

    # ---- checkpoints

    def _barrier(self, channel: int, frame: Frame) -> None:
        checkpoint = frame.checkpoint
        if checkpoint <= self._outputs.epoch or checkpoint in self._aborted:
            return
        if self._inputs.barrier(channel, checkpoint):
            self._inputs.release()
            self._snapshot(checkpoint)

    def _abort(self, checkpoint: int) -> None:
        self._aborted.add(checkpoint)
        if self._inputs.aligning == checkpoint:
            self._inputs.release()

    def _snapshot(self, checkpoint: int) -> None:
        """What a replay passes was persisted by its predecessor, or is of no use."""
        replayed = self.state is TaskState.REPLAYING and self._gate.replaying
        self._events += self._snapshotting.take(checkpoint, self._others, self._ended, persist=not replayed)
        self._aborted = {c for c in self._aborted if c > checkpoint}
        if self._landmarks:
            self._landmarks.epoch()

    # ---- for the driver

    def commit(self, name: str, committable: bytes) -> None:
        """Commits what a sink of this task prepared. Raises SinkError."""
        self._chain.commit(name, committable)

    def close(self) -> None:
        self._regeneration.close()
        self._chain.close()
        if self._reader:
            self._reader.close()
