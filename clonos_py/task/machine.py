"""The task: a state machine that owns the gate and the operators (D4, D8). Its own code does no I/O.

Sources, operators and clients of services do, and its environment stores large answers. Its states are in
``task/states.py``. If ``step`` raises an error, the driver ends the process.

    [*] --> STANDBY
    STANDBY --state and log loaded--> REPLAYING
    REPLAYING --log used up--> RUNNING
    RUNNING --all input ended--> FINISHED

``offer`` passes in what the link received. ``step`` performs exactly one event and returns its outcome. A running task
chooses the event and logs the choice. A replaying task takes the event from the log and waits until that event is
possible. A FINISHED task still takes part in checkpoints.

Invariants, asserted:
- frames and the determinants that they depend on leave in the same ``Produced``, determinants first;
- a replay ends exactly where its log ends, and makes no live choice before;
- a snapshot is taken with nothing pending in the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa

from clonos_py.causal.determinants import (
    Abort,
    Completion,
    Determinant,
    Fed,
    FrameBatch,
    FrameRows,
    InputOrder,
    Landmark,
    Linger,
    LoopEnd,
    PartitionsDiscovered,
    ReadBatch,
    SourceEnd,
    SourceIdle,
    SourceRead,
    SourceReopened,
    TimerFired,
    Trigger,
)
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import LogWriter
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.columns.views import concat
from clonos_py.model.calls import Answered
from clonos_py.model.errors import DivergenceError, EndedError, ProtocolError, UserCodeError
from clonos_py.model.ids import FIRST_ATTEMPT, TaskId
from clonos_py.model.operators import Committing, Discovered, Read
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.states import EventTable, Ignored, Impossible, LastEvents
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import (
    AbortRequest,
    Begin,
    ChannelLimits,
    Deliver,
    FeedPointLoaded,
    FeedRequested,
    FrameRowsRequested,
    FramesTaken,
    FromTask,
    GoOn,
    LoopEndRequest,
    MayProduce,
    NoFurtherEffect,
    Observed,
    ProbeRequest,
    Produced,
    Regenerate,
    RegenerateBelow,
    Renumber,
    RestoreState,
    SourceArrival,
    SourceEndRequest,
    SourceLimit,
    StateChanged,
    TaskProgress,
    TaskState,
    ToTask,
    TriggerRequest,
    WatermarkReached,
)
from clonos_py.task.chain import NOT_ENDED, Chain
from clonos_py.task.checkpointing import TaskSide
from clonos_py.task.context import OperatorEnvironment, TaskContext
from clonos_py.task.feed_points import FeedPoints
from clonos_py.task.landmarks import Landmarks
from clonos_py.task.last_checkpoint import LastCheckpoint
from clonos_py.task.lingering import Lingering
from clonos_py.task.loops import LoopMember, inputs_of
from clonos_py.task.metrics import TaskMetrics
from clonos_py.task.outcome import Outcome
from clonos_py.task.outputs import Outputs
from clonos_py.task.partwise import Arrival
from clonos_py.task.reader import Reader, determinants_of
from clonos_py.task.regeneration import Regeneration
from clonos_py.task.snapshotting import Snapshotting
from clonos_py.task.states import TASK_STATES, TaskCause
from clonos_py.task.throughput import ReadSize, Throughput

_GRANULARITY, _LANDMARKS = "time_granularity_us", "landmark_interval_us"
TASK_SETTINGS = frozenset({_GRANULARITY, _LANDMARKS})
"""The settings of a plan that a task reads."""


class TaskMachine:
    """The task of one process, active or standby."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task: TaskId,
        environment: OperatorEnvironment,
        checkpointing: TaskSide,
        linger_us: int = 10_000,
        limits: ChannelLimits = ChannelLimits(),  # noqa: B008 - frozen
    ) -> None:
        self.task, self.state = task, TASK_STATES.initial
        self._handlers = TASK_EVENTS.row(self.state)
        self._last = LastEvents()
        self._events: list[FromTask] = []
        vertex = plan.by_name[task.vertex]
        self._gaps, self._recorded = plan.gaps, plan.recorded
        self._writer = LogWriter(task.log_id, keeps=plan.logged(task) or plan.recorded)
        keeper = environment if plan.sharing_depth != 0 or plan.recorded else None
        self._gate = Gate(self._writer, plan.settings.get(_GRANULARITY, 0), keeper)
        self._shared = TaskContext(
            task, vertex.parallelism, plan.groups(task), plan.key_groups, self._gate, environment
        )
        self._outputs = Outputs(plan, task)
        self._chain = Chain(plan, task, self._shared, self._outputs)
        self._input_edges = [plan.edges[channel.edge] for channel in plan.inputs[task]]
        self._inputs = inputs_of(plan, task, limits.frames_merged)
        in_loop = plan.loop_of(task) is not None
        self._loop = LoopMember(plan, task, self._inputs) if in_loop else None
        self._adaptive = any(edge.adaptive for edge in self._input_edges) or bool(
            vertex.source and vertex.source.adaptive
        )
        self._throughput = Throughput()
        self._read_size = ReadSize(self._throughput)
        self._queue_us = limits.queue_us // max(1, sum(edge.adaptive for edge in self._input_edges))
        assigners = {self._chain.name_of(number): found for number, found in self._chain.assigners.items()}
        self._reader = Reader(vertex.source, task.index, vertex.parallelism, assigners) if vertex.source else None
        self.committing: Mapping[str, Committing] = dict(self._chain.sinks)
        if self._reader and vertex.source and vertex.source.commits:
            self.committing = {**self._chain.sinks, self._reader.name: self._reader}
        self._stamps = plan.protocol.stamps
        self._checkpointing = checkpointing(self._inputs, plan, task)
        if self._stamps:
            self._outputs.stamp = self._checkpointing.stamp
        parts = (self._inputs, self._chain, self._outputs, self._reader, self._checkpointing)
        self._snapshotting = Snapshotting(self._shared, self._writer, *parts, plan.protocol.barriers)
        resumes = self._reader and plan.regenerates(vertex) and (limits.regenerates or not self._reader.logs_rows)
        landmark_us = plan.settings.get(_LANDMARKS)
        self._landmarks = Landmarks(self._gate, self._snapshotting, landmark_us) if resumes else None
        self._partwise = self._chain.partwise
        self._feed_points = FeedPoints(plan.standby_feed_us)
        self._regeneration = Regeneration(
            partial(TaskMachine, plan, task, environment, checkpointing, linger_us, limits)
        )
        sinks = any(operator.sink for operator in vertex.operators)
        self._metrics = TaskMetrics(self._shared, self._outputs, sinks)
        self._lingering = Lingering(self._outputs, linger_us, limits.cuts_early)
        self._last_checkpoint = LastCheckpoint(possible=not in_loop)
        self._may_produce = True
        aligned = vertex.source is not None and vertex.source.event_time.ahead_us is not None
        self._limit_us = MIN_TIME if aligned else MAX_TIME
        """Up to which watermark the source may read."""
        self._may_end = False
        """Whether the source may end before all is read."""
        self._run = ""
        self._now_us = 0
        """When the current step began."""
        self._restore_state(RestoreState(0, {}, None))

    # ---- input from the link

    def offer(self, item: ToTask) -> None:
        """Takes an item from the link. Raises ProtocolError if the item is not valid in this state."""
        handler = self._handlers.get(type(item))
        if handler is None:
            raise TASK_EVENTS.broken(self.task, self.state, item, self._last)
        self._last.add(type(item))
        handler(self, item)

    def _on_deliver(self, item: Deliver) -> None:
        self._inputs.offer(item.input, item.frame)

    def _on_renumber(self, item: Renumber) -> None:
        if self._ended and not item.ended:
            raise EndedError(f"{self.task} had ended when a task before it restarted without its log")
        self._inputs.restart(item.input, item.next_seq, item.ended)

    def _on_trigger(self, item: TriggerRequest | AbortRequest) -> None:
        self._last_checkpoint.triggered(item)
        if self._partwise and isinstance(item, TriggerRequest) and item.purpose is Purpose.REQUESTED:
            self._partwise.save_all()
        self._checkpointing.triggered(item)

    def _on_go_on(self, item: GoOn) -> None:
        self._last_checkpoint.go_on()

    def _on_probe(self, item: ProbeRequest) -> None:
        loop = self._member()
        self._events.append(loop.counts(item.number, self._at_rest, self._outputs.epoch, self._outputs.next_seqs))

    def _on_loop_end(self, item: LoopEndRequest) -> None:
        self._member().call_end()

    def _member(self) -> LoopMember:
        if self._loop is None:
            raise ProtocolError(f"{self.task} is in no loop; last events: {self._last}")
        return self._loop

    def _on_source_limit(self, item: SourceLimit) -> None:
        self._limit_us = item.limit_us
        self._events.append(WatermarkReached(self._reached_us))

    @property
    def _reached_us(self) -> int:
        """The event time that the source holds back; MAX_TIME if it holds none back."""
        timed = self._reader is not None and self._reader.timed and not self._reader.ended
        return self._chain.event_time if timed and not self._outputs.idle else MAX_TIME

    def _on_source_end(self, item: SourceEndRequest) -> None:
        self._may_end = True

    def _on_source_arrival(self, item: SourceArrival) -> None:
        """The next step polls the source."""

    def _on_answered(self, item: Answered) -> None:
        self._shared.calls.answer(item)

    def _on_may_produce(self, item: MayProduce) -> None:
        self._may_produce = item.allowed

    def _on_frame_rows_requested(self, item: FrameRowsRequested) -> None:
        self._outputs.request_frame_rows(item.output, item.rows)

    def _on_regenerate(self, item: Regenerate | RegenerateBelow) -> None:
        self._regeneration.take(item)

    def _on_feed_requested(self, item: FeedRequested) -> None:
        self._feed_points.request()

    def _on_restore_state(self, item: RestoreState) -> None:
        self._restore_state(item)
        if item.feed_point:
            self._events.append(FeedPointLoaded(item.feed_point))

    def _restore_state(self, item: RestoreState) -> None:
        self._snapshotting.restore(item)
        if self._loop:
            self._loop.restore()
        progress = item.progress
        self._at_snapshot = progress.inputs if progress else []
        self._ended, self._other_events = (progress.finished, progress.other_events) if progress else (False, 0)
        self._fits_feed = progress is not None or not item.operators

    @property
    def _at_rest(self) -> bool:
        """Whether only new input or timers can cause more work."""
        live = self.state in (TaskState.RUNNING, TaskState.FINISHED) and not self._gate.replaying
        return live and not self._outputs.waiting and not self._shared.working

    def _on_begin(self, item: Begin) -> None:
        self._shared.numbering, self._run = item.numbering, item.run
        self._shared.may_repeat = item.attempt > FIRST_ATTEMPT
        if self._gaps and self._reader:
            self._reader.skip(self._gate.pass_over(item.log))
        elif item.fed is not None:
            self._gate.load_at(item.log, *msgspec.structs.astuple(item.fed))
            self._chain.give()
        elif self._landmarks is None or not item.at_landmark:
            self._gate.load(item.log)
        elif resumed := self._landmarks.resume(item.log, item.before, self._restore_state):
            self._events.append(resumed)
        if self._rebuilding:
            self._chain.begin_rebuild()
        if self._reader and self._reader.run is None:
            self._reader.run = item.run
        for checkpoint in item.aborted:
            self._on_trigger(AbortRequest(checkpoint))
        self._enter(TaskCause.BEGUN)
        self._settle()

    @property
    def replaying(self) -> bool:
        """Whether the next event comes from the log, or from the stored order of a rebuild."""
        return self._gate.replaying or self._rebuilding

    @property
    def coming(self) -> Sequence[Determinant]:
        """What the log has of the next event of a replay; empty if it is used up."""
        return self._gate.coming

    def follow(self, determinants: Sequence[Determinant]) -> None:
        """The next step performs the event of these determinants, which another task has performed (F3). Only for a
        running task that is given all of its events so, and whose log nobody needs."""
        self._gate.follow(determinants)

    @property
    def held_back(self) -> bool:
        """Whether it may not take anything, since receivers or its own memory are full."""
        return not self._may_take

    @property
    def blocked(self) -> bool:
        """Whether frames wait on channels that are blocked for a snapshot."""
        return self._inputs.holds_back

    @property
    def _rebuilding(self) -> bool:
        return self._partwise is not None and self._partwise.rebuilding

    def _enter(self, cause: TaskCause) -> None:
        self.state = TASK_STATES.after(self.state, cause, self.task, self._last)
        self._handlers = TASK_EVENTS.row(self.state)
        self._events.append(StateChanged(self.state, self._metrics.rows_replayed))

    # ---- one event

    def step(self, now_us: int) -> Outcome:
        """Performs the next event, if there is one. ``now_us`` is read from the steady clock. Raises what the event
        raised; the task has then failed."""
        if self.state not in (TaskState.REPLAYING, TaskState.RUNNING, TaskState.FINISHED):
            return self._outcome(MAX_TIME)
        if (lag_us := self._feed_points.lag_us(now_us)) is not None:
            self._events.append(Observed(standby_lag_us=lag_us))
        self._now_us = now_us
        if self._rebuilding:
            worked = self._rebuild_event(now_us)
        else:
            worked = self._replay_event(now_us) if self._gate.replaying else self._live_event(now_us)
        self._events += self._metrics.counters()  # the last ones, too, precede the change to FINISHED
        self._settle()
        self._hand_over()
        if (regenerated := self._regeneration.step()) is not None:
            self._events += [regenerated] if regenerated.frames else []
            worked = True
        if worked:
            self._lingering.arm(now_us)
            return self._outcome(None)
        return self._outcome(MAX_TIME if self.replaying else self._wake_us(now_us))

    def worked(self, us: int) -> None:
        """The last step has taken so long, in a thread that other tasks use, too. Influences live choices only."""
        self._throughput.worked(us)

    def _outcome(self, wake_us: int | None) -> Outcome:
        events, calls = self._events[:], self._shared.calls.start() if self.state is TaskState.RUNNING else ()
        self._events.clear()
        return Outcome(events, wake_us, calls)

    def _settle(self) -> None:
        """Changes the state at the end of the replay and at the end of all input."""
        if self.state is TaskState.REPLAYING and not self._gate.replaying and not self._rebuilding:
            self._enter(TaskCause.LOG_USED_UP)
        if self.state is TaskState.RUNNING and self._ended:
            self._enter(TaskCause.INPUT_ENDED)

    def _hand_over(self) -> None:
        """Emits frames with their determinants. Determinants wait for frames that depend on them, so that segments are
        few and long."""
        cut = self._outputs.cut or self._outputs.published
        self._emit(self._outputs.take(self._writer.cut() if cut or self._writer.full else None))

    def _emit(self, produced: Produced) -> None:
        if produced.log or produced.frames or produced.published:
            self._events += (produced, self._metrics.cut(produced))

    def _wake_us(self, now_us: int) -> int:
        if self._last_checkpoint.stands_still:
            return MAX_TIME
        times = [self._lingering.wake_us(now_us), self._shared.timers.wake_us(now_us), self._checkpointing.wake_us]
        if self._may_feed:
            times.append(self._feed_points.wake_us(self._writer.offset))
        if self._reader and self._may_read():
            times += (self._reader.next_idle_us, self._reader.wake_us)
        return min((t for t in times if t is not None), default=MAX_TIME)

    def _may_read(self) -> bool:
        return self._reader is not None and not self._reader.ended and self._may_take and not self.is_ahead

    @property
    def is_ahead(self) -> bool:
        """Whether the source is too far ahead of the slowest one. It may read until it has a watermark."""
        return self._limit_us < MAX_TIME and self._limit_us < self._reached_us < MAX_TIME

    @property
    def _may_take(self) -> bool:
        return self._may_produce and not self._shared.full

    # ---- rebuilding: what the last snapshot covers comes again, for the operator whose state is saved in parts

    def _rebuild_event(self, now_us: int) -> bool:
        assert self._partwise is not None
        if (arrival := self._partwise.next()) is None:
            self._end_rebuild(now_us)
            return True
        channel, count = arrival
        if not self._inputs.ready(channel, count):
            return False
        self._partwise.begin(self._inputs.progress, now_us)
        frames, rows = self._taken(channel, count)
        row_count = rows.num_rows if rows is not None else 0
        if rows is not None:
            self._events.append(self._metrics.took(row_count, self._chain.watermark, True))
        for frame in frames:
            self._inputs.observe(channel, frame)
        ended = frames[-1].kind is FrameKind.END and self._inputs.end(channel)
        self._chain.rebuild(self._input_edges[channel].id, rows, MIN_TIME if ended else self._inputs.watermark)
        self._partwise.came(row_count)
        return True

    def _end_rebuild(self, now_us: int) -> None:
        assert self._partwise is not None
        if self._inputs.progress != self._at_snapshot:
            raise DivergenceError(
                f"{self.task} has rebuilt its state from other frames than its predecessor had taken: its inputs are "
                f"at {self._inputs.progress}, the checkpoint says {self._at_snapshot}"
            )
        self._chain.rebuilt()
        self._partwise.finish(self._inputs.progress, now_us)

    # ---- replaying: the log determines the next event

    def _replay_event(self, now_us: int) -> bool:
        expected = self._gate.peek()
        count = expected.count if isinstance(expected, FrameBatch) else 1
        if isinstance(expected, InputOrder | FrameBatch) and not self._inputs.ready(expected.channel, count):
            return False
        match expected := self._gate.take():
            case InputOrder(channel=channel) | FrameBatch(channel=channel):
                self._take_frames(channel, count)
            case SourceRead() | ReadBatch():
                logged = [expected] if isinstance(expected, SourceRead) else self._gate.take_next(expected.count)
                assert self._reader is not None
                self._admit(self._reader.reread(logged, self._gate.ask), now_us)
            case Landmark() if self._landmarks:
                self._landmarks.compare(expected, self._other_events, self._ended, now_us)
            case _:
                self._perform(expected)
        return True

    # ---- running: the task chooses, and logs the choice

    def _live_event(self, now_us: int) -> bool:
        if self._landmarks and self._landmarks.due(now_us):
            self._emit(self._landmarks.log(self._other_events, self._ended, now_us))
            return True
        if self._run and self._reader and self._reader.run != self._run and not self._reader.ended:
            return self._decide(SourceReopened(self._run))
        if (due := self._checkpointing.due(now_us, self._outputs.epoch)) is not None:
            return self._decide(due)
        if self._partwise and self._partwise.check_due(now_us) and self._partwise.check(self._inputs.progress, now_us):
            return True  # the next step measures how long it has taken
        if self._last_checkpoint.stands_still:
            return False
        if self._feed_points.due(now_us, self._writer.offset) and self._may_feed:
            self._decide(Fed())
            self._feed_points.taken(now_us, self._writer.offset)
            return True
        if self._loop and (end := self._loop.due()) is not None:
            return self._decide(end)
        if (timer := self._shared.timers.due(now_us)) is not None:
            return self._decide(TimerFired(timer[1], timer[0]))
        if self._lingering.due(now_us):
            return self._decide(Linger())
        if self._fall_idle(now_us):
            return True
        if (resizing := self._outputs.resizing()) is not None:
            return self._decide(resizing)
        if (answer := self._shared.calls.next()) is not None:
            return self._decide(answer)
        if self._may_end and self._reader and not self._reader.ended:
            return self._decide(SourceEnd())
        if not self._may_take:
            self._throughput.held_back(now_us, bool(self._shared.full))
            return False
        if self._adaptive:
            self._throughput.ready(now_us)
        if (arrival := self._inputs.choose(self._rows_at_once if self._throughput.known else None)) is not None:
            if self._stamps and (forced := self._forced(arrival)) is not None:
                return self._decide(forced)
            self._gate.record(arrival)
            self._throughput.took(self._take_frames(arrival.channel, arrival.count), now_us)
            if self._chain.satisfied and not self._ended:
                self._events.append(NoFurtherEffect(self._outputs.epoch))
            return True
        if self._may_read() and (self._poll(now_us) or self._fall_idle(now_us)):
            return True
        return self._lingering.due_early(now_us) and self._decide(Linger())

    def _fall_idle(self, now_us: int) -> bool:
        partition = self._reader.due_idle(now_us) if self._reader else None
        return partition is not None and self._decide(SourceIdle(partition))

    @property
    def _may_feed(self) -> bool:
        """Whether the whole state of the task would be in a feed point. That of several former tasks is not, before the
        first snapshot."""
        return self._fits_feed and not self._checkpointing.aligning

    @property
    def _rows_at_once(self) -> int:
        """The most rows to take in one step, as far as this is known."""
        own, emitted = self._throughput.rows_at_once(), self._outputs.rows_at_once
        return own if emitted is None else min(own, emitted)

    def _forced(self, arrival: InputOrder | FrameBatch) -> Trigger | None:
        frames = self._inputs.waiting(arrival.channel, arrival.count)
        return self._checkpointing.before(frames, self._outputs.epoch)

    def _decide(self, determinant: Determinant) -> bool:
        self._gate.record(determinant)
        self._perform(determinant)
        return True

    def _poll(self, now_us: int) -> bool:
        assert self._reader is not None
        reads = self._reader.poll(now_us, self._read_size.next(self._outputs.rows_at_once) if self._adaptive else None)
        if reads is None:
            return False
        if isinstance(reads, Discovered):
            return self._decide(PartitionsDiscovered(dict(reads.starts)))
        if not reads:
            return self._decide(SourceEnd())
        for determinant in determinants_of(reads):
            self._gate.record(determinant)
        self._reader.log_rows(reads, self._gate.ask)
        self._admit(reads, now_us)
        self._throughput.took(sum(read.row_count for read in reads), now_us)
        return True

    # ---- effects of events, live and replayed

    def _perform(self, determinant: Determinant) -> None:
        self._last.add(type(determinant))
        self._other_events += 1
        self._shared.frame = (-1, self._other_events)
        match determinant:
            case TimerFired(operator=operator, at_us=at_us):
                self._shared.timers.remove(operator, at_us)
                self._chain.fire(operator, at_us)
                self._worked_off()
            case Completion() as completion if self._shared.calls.complete(completion):
                self._chain.answer(completion)
                self._worked_off()
            case Linger():
                self._outputs.flush()
            case FrameRows() as change:
                self._outputs.resize(change)
            case Trigger(checkpoint=checkpoint, forced=forced):
                self._snapshot(checkpoint, forced)
            case Abort(checkpoint=checkpoint):
                self._checkpointing.abort(checkpoint)
            case Fed():
                self._feed_point()
            case LoopEnd() if self._loop:
                self._loop.end()
                self._finish()
            case SourceIdle(partition=partition):
                assert self._reader is not None
                self._reader.fall_idle(partition)
                self._follow_idleness()
                self._follow_source()
            case PartitionsDiscovered(starts=starts):
                assert self._reader is not None
                self._reader.discover(starts)
                self._follow_idleness()
            case SourceReopened(run=run):
                assert self._reader is not None
                self._reader.reopen(run)
                self._follow_idleness()
            case SourceEnd():
                assert self._reader is not None
                self._reader.ended = True
                self._finish()
            case _:
                raise DivergenceError(f"{self.task} is to replay {determinant} here, where no operator asks for it")

    def _take_frames(self, channel: int, count: int) -> int:
        """Takes frames and returns their number of rows. Several frames are data frames, and their rows are processed
        as one batch."""
        adaptive = self._input_edges[channel].adaptive and self._throughput.known
        frames, rows = self._taken(channel, count, adaptive)
        frame = frames[-1]
        if self._stamps:
            self._checkpointing.took(frames)
        self._shared.frame = (channel, frames[0].seq)
        row_count = 0
        if rows is not None:
            if self._ended:
                raise UserCodeError(
                    f"rows returned to {self.task}, the head of a loop that has ended: an operator of the loop emits "
                    "rows at the end of its input, or by a timer; emit them while rows arrive, or after the loop"
                )
            row_count = rows.num_rows
            self._events.append(self._metrics.took(row_count, self._chain.watermark, self.state is TaskState.REPLAYING))
            self._chain.enter(self._input_edges[channel].id, rows)
        for taken in frames:
            self._events += self._metrics.marker(taken.marker_us, channel, taken.seq)
            self._inputs.observe(channel, taken)
        if self._input_edges[channel].untimed:
            self._follow_untimed(channel)
        if self._partwise:
            self._partwise.took(Arrival(channel, count), row_count)
        match frame.kind:
            case FrameKind.DATA:
                self._follow_inputs()
            case FrameKind.BARRIER | FrameKind.LAST_BARRIER:
                self._follow_inputs()
                if frame.kind is FrameKind.LAST_BARRIER:
                    self._last_checkpoint.announce(frame.checkpoint)
                if self._checkpointing.barrier(channel, frame.checkpoint, self._outputs.epoch):
                    self._snapshot(frame.checkpoint)
            case FrameKind.END:
                if not self._inputs.end(channel):
                    self._follow_inputs()
                elif not self._ended:  # an END also returns to the loop head, which has ended
                    self._finish()
            case FrameKind.LOG_ONLY | FrameKind.LOGS_ARRIVED:
                raise ProtocolError("a frame without a number is for the link, not for the task")
        return row_count

    def _taken(self, channel: int, count: int, adaptive: bool = False) -> tuple[list[Frame], pa.RecordBatch | None]:
        """Takes frames from an input, and returns them with all of their rows. ``adaptive``: requests rows of the
        sender by what they cost."""
        frames = [self._inputs.take(channel) for _ in range(count)]
        requested, at_once = (self._throughput.rows_within(self._queue_us), self._rows_at_once) if adaptive else (0, 0)
        self._events.append(
            FramesTaken(channel, frames[-1].seq + 1, self._inputs.restarts(channel), requested, at_once)
        )
        batches = [frame.rows for frame in frames if frame.rows is not None]
        return frames, concat(batches) if batches else None

    def _follow_inputs(self) -> None:
        self._follow_idleness()
        self._chain.advance(self._inputs.watermark)
        self._follow_idleness()

    def _follow_untimed(self, channel: int) -> None:
        """Tells an operator that the channels of a side without times have settled."""
        edge = self._input_edges[channel]
        entry = edge.consumer, edge.side
        if self._inputs.settled(i for i, e in enumerate(self._input_edges) if (e.consumer, e.side) == entry):
            self._chain.settled(edge.id)

    def _follow_idleness(self) -> None:
        """Updates the idleness of the outputs. A task whose operators hold unfinished rows is not idle."""
        idle = self._reader.idle if self._reader else self._inputs.idle
        self._outputs.idle = idle and not self._shared.working

    def _worked_off(self) -> None:
        """Follows up after an operator has worked without new input: it may have finished its last row."""
        if self._chain.ended == NOT_ENDED:
            self._follow_idleness()
        elif not self._ended:
            self._finish()

    def _admit(self, reads: Sequence[Read], now_us: int) -> None:
        """Processes reads of the source. Several reads are one event, and their rows one batch."""
        assert self._reader is not None
        self._other_events += 1
        self._shared.frame = (-1, self._other_events)
        events = sum(read.event_count for read in reads)
        replaying, waiting = self.state is TaskState.REPLAYING, self._reader.rows_waiting
        took = self._metrics.took(events, self._chain.event_time, replaying, waiting, self._reader.bytes_kept)
        self._events.append(took)
        self._outputs.idle = False
        reads = [self._reader.accept(read, now_us) for read in reads]
        for together in [[read] for read in reads] if self._chain.assigners else [reads]:
            self._reader.begin(together[0].partition)
            self._give(together)
            self._reader.assign(together[0].partition)
        for read in reads:
            for metric, amount in read.counts.items():
                self._shared.count(f"{self._reader.name}.{metric}", amount)
            self._events += self._metrics.source_marker(now_us, read.due_us)
        self._events += self._metrics.event_times(self._reader.extents)
        self._follow_source()
        if self._landmarks:
            self._landmarks.read()

    def _give(self, reads: Sequence[Read]) -> None:
        for port, pieces in enumerate(zip(*(read.rows for read in reads), strict=True)):
            if batches := [rows for rows in pieces if rows is not None]:
                self._chain.source_port.emit(concat(batches), port)

    def _follow_source(self) -> None:
        assert self._reader is not None
        self._chain.advance(self._reader.watermark)
        for number in self._chain.assigners:
            self._chain.assign(number, self._reader.assigned(self._chain.name_of(number)))

    def _finish(self) -> None:
        self._outputs.idle = False
        if not self._chain.end():
            return
        self._shared.timers.clear()
        self._outputs.close_with(FrameKind.END)
        self._ended = True

    # ---- checkpoints

    def _snapshot(self, checkpoint: int, forced: bool = False) -> None:
        """Takes a snapshot. It is not persisted in a replay: the predecessor has persisted it, or it is of no use."""
        replayed = self.state is TaskState.REPLAYING and self._gate.replaying
        last = self._last_checkpoint.taken(checkpoint)
        self._events += self._snapshotting.take(
            checkpoint, forced, last, self._other_events, self._ended, not replayed, self._now_us
        )
        self._fits_feed = True
        if self._partwise and not replayed:
            self._events.append(Observed(saved_parts=self._partwise.saved))
        if self._landmarks:
            self._landmarks.epoch()

    def _feed_point(self) -> None:
        """Takes a feed point. A replay repeats its effects; the standbys got it from the predecessor."""
        replayed = self.state is TaskState.REPLAYING
        produced, point = self._snapshotting.feed_point(self._other_events, self._ended)
        self._events += [produced] if replayed else [produced, point]

    # ---- for the driver and for observers

    def notify(self, wake: Callable[[], None]) -> None:
        """Registers ``wake``, which any thread may call when the source has new data; a step then polls it."""
        if self._reader:
            self._reader.notify(wake)

    @property
    def progress(self) -> TaskProgress:
        """The task's progress, as a snapshot taken now would hold it."""
        return self._snapshotting.progress(self._other_events, self._ended, self._writer.offset)

    def last_log(self) -> Produced | None:
        """The determinants that were not passed on yet, of a task that has failed, with those of the event in which it
        did. None if there are none, or if the job does not record."""
        segment = self._writer.cut() if self._recorded else None
        return Produced(segment, ()) if segment is not None else None

    @property
    def watermark(self) -> int:
        """The event time up to which the task's input is complete."""
        return self._chain.watermark

    @property
    def stands_still(self) -> bool:
        """Whether the task waits behind the snapshot with which its job ends."""
        return self._last_checkpoint.stands_still

    @property
    def timers(self) -> list[tuple[int, int]]:
        """(time of day, operator number) of the timers that are set."""
        return self._shared.timers.all

    @property
    def uncut(self) -> list[tuple[int, int]]:
        """(output, frame number) of the frames that wait for more rows."""
        return self._outputs.uncut

    def abandon(self) -> None:
        """Closes what the end of the operating system's process would have closed: threads and connections of the
        source. Called when the task is killed in a process of the operating system that it shares with others."""
        self._regeneration.close()
        if self._reader:
            self._reader.close()

    def close(self) -> None:
        self._regeneration.close()
        self._chain.close()
        if self._reader:
            self._reader.close()


_BEGUN: dict[TaskState, Ignored | Impossible] = {
    state: Impossible("only a standby takes state, and begins once")
    for state in TaskState
    if state is not TaskState.STANDBY
}

TASK_EVENTS: EventTable[TaskMachine, TaskState, None] = EventTable(TaskState)
_on = TASK_EVENTS.on
_on(RestoreState, TaskMachine._on_restore_state, _BEGUN)
_on(Begin, TaskMachine._on_begin, _BEGUN)
_on(Deliver, TaskMachine._on_deliver)
_on(Renumber, TaskMachine._on_renumber)
_on(TriggerRequest, TaskMachine._on_trigger)
_on(AbortRequest, TaskMachine._on_trigger)
_on(GoOn, TaskMachine._on_go_on)
_on(ProbeRequest, TaskMachine._on_probe)
_on(LoopEndRequest, TaskMachine._on_loop_end)
_on(SourceLimit, TaskMachine._on_source_limit)
_on(SourceEndRequest, TaskMachine._on_source_end)
_on(SourceArrival, TaskMachine._on_source_arrival)
_on(MayProduce, TaskMachine._on_may_produce)
_on(FrameRowsRequested, TaskMachine._on_frame_rows_requested)
_on(Answered, TaskMachine._on_answered)
_on(Regenerate, TaskMachine._on_regenerate)
_on(RegenerateBelow, TaskMachine._on_regenerate)
_on(FeedRequested, TaskMachine._on_feed_requested)
