"""The link: the state machine that owns a process's channels, logs and acknowledgements, and never runs operators (D8).

Its states are in ``link/states.py``; what it does with each event in each state is at the end of this file.

    [*] --> STANDBY
    STANDBY --promoted--> CONNECTING
    CONNECTING --all inputs opened--> FETCHING_DETERMINANTS
    CONNECTING, FETCHING_DETERMINANTS --state and log loaded--> REPLAYING
    REPLAYING --log used up--> RUNNING
    RUNNING --all input ended--> FINISHED
    any --error--> FAILED

``handle`` takes one event (a control message, an event of the driver, or an event of the task) and returns
instructions. Each part of the link returns its own instructions; the machine puts them in order, and the driver keeps
that order.

Invariants:
- a frame leaves in one message with every determinant that its receiver will depend on (always-no-orphans);
- only connections of the expected attempt are served or read (D11);
- a frame or determinant is dropped only if a completed checkpoint covers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from clonos_py.channel.frames import FrameCodec
from clonos_py.link import instructions as io
from clonos_py.link.catching_up import CatchingUp
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.checkpointing import LinkSide
from clonos_py.link.connections import Connections
from clonos_py.link.epochs import Epochs
from clonos_py.link.following import FeedState, Following
from clonos_py.link.held_logs import HeldLogs, shared_logs
from clonos_py.link.inflow import Inflow
from clonos_py.link.outflow import FRAMES_MOVED, FramesMoved, Outflow
from clonos_py.link.pressure import Pressure
from clonos_py.link.receiving import InputChannel
from clonos_py.link.recording import LogRecording
from clonos_py.link.restoring import RestoredFrames, Restoring
from clonos_py.link.sending import OutputChannel, window_of
from clonos_py.link.standby_feed import StandbyFeed
from clonos_py.link.states import BEFORE_BEGIN, LINK_STATES, LinkCause
from clonos_py.link.status import TaskStatus
from clonos_py.model import messages as control
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment, StableMark
from clonos_py.model.snapshots import Manifest, RecordTail, TaskSnapshot, lineage_of
from clonos_py.model.state import StateSize, size_of
from clonos_py.model.states import EventTable, Ignored, Impossible, LastEvents, Unless
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskProgress, TaskState


class LinkMachine:
    """The link of one process, which is active or a standby."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task_id: TaskId,
        process: int,
        codec: FrameCodec,
        checkpointing: LinkSide,
        limits: ChannelLimits = ChannelLimits(),  # noqa: B008 - frozen
        retain: bool = True,
    ) -> None:
        self.task_id, self.process, self.state = task_id, process, LINK_STATES.initial
        self._handlers = LINK_EVENTS.row(self.state)
        self._last = LastEvents()
        self.attempt: Attempt | None = None
        self._logs = plan.sharing_depth != 0
        self._in_loop = plan.loop_of(task_id) is not None
        stamped = len(plan.tasks) if plan.protocol.stamps else 0
        self.inputs = [
            InputChannel(i, c, plan.sender(c), limits.window, stamped) for i, c in enumerate(plan.inputs[task_id])
        ]
        self._held_logs = HeldLogs(plan, task_id, self.inputs)
        self.store = self._held_logs.store
        vertex = plan.by_name[task_id.vertex]
        regenerates = plan.regenerates(vertex)
        drops_taken = regenerates and limits.regenerates
        self.outputs = [
            OutputChannel(
                index,
                channel,
                receiver := plan.receiver(channel),
                shared_logs(plan, task_id, receiver),
                retain=retain,
                regenerates=regenerates,
                drops_taken=drops_taken,
                sampled=vertex.sampled,
                window=window_of(plan.edges[channel.edge], limits),
                stamped=stamped,
                feedback=plan.edges[channel.edge].feedback,
            )
            for index, channel in enumerate(plan.outputs[task_id])
        ]
        self._connections = Connections(plan.job, process, self.inputs, self.outputs)
        self._catching_up = CatchingUp(process, len(self.inputs))
        self._causal_outputs = CausalOutputs(plan, task_id, self.store, codec)
        self._pressure = Pressure(self.outputs, limits, vertex.source is not None, drops_taken, self._causal_outputs)
        own_log = task_id.log_id if self._logs else None
        self._outflow = Outflow(
            process, own_log, self.outputs, self.store, codec, limits, self._pressure, self._catching_up
        )
        self._commits = vertex.commits
        self._round = 0
        self._numbering = self._run = ""
        self._unanswered_sever: control.Sever | None = None
        self._following = Following(plan, task_id, self.store)
        self._restoring = Restoring(
            process, task_id, self.inputs, self.outputs, RestoredFrames(plan, codec, self._logs), self._following
        )
        self._status = TaskStatus(process, self.inputs, self.outputs, self._restoring)
        self._recording = LogRecording(plan.recorded)
        self._recorded, self._logged = plan.recorded, plan.logged(task_id)
        self._feed = StandbyFeed(plan, task_id, self.outputs, self.store, codec, self._causal_outputs, self._recording)
        self._replay: control.Replay | None = None
        self._complete_at_begin: control.Complete | None = None
        """A checkpoint that was completed before the task has begun, and that its restart point did not cover."""
        self._epochs = Epochs()
        self._checkpointing = checkpointing(plan, self.outputs, codec)
        self._inflow = Inflow(
            self.inputs, self._held_logs, self._catching_up, self._restoring, self._checkpointing.reports
        )
        self._coordinated, self._stores_logs = plan.protocol.coordinated, plan.stores_logs
        self._unstored: tuple[TaskSnapshot, TaskProgress] | None = None
        self._snapshot_times: dict[int, task.SnapshotTimes] = {}
        self._state_sizes: dict[str, StateSize] = {}
        """By checkpoint: what its snapshot has cost, until it is durable."""
        """The last snapshot, if it waits for logs."""

    # ---- dispatch

    def handle(self, event: control.ToProcess | io.LinkEvent | task.FromTask) -> list[io.Instruction]:
        """Processes one event and returns the instructions that follow. Raises ProtocolError and other errors of
        model.errors; the process has then failed, and later events of its task are void."""
        handler = self._handlers.get(type(event))
        if handler is None:
            raise LINK_EVENTS.broken(f"the link of {self.task_id}", self.state, event, self._last)
        self._last.add(type(event))
        incomplete = self.store.incomplete
        instructions = handler(self, event)
        if self.store.incomplete is not incomplete:
            instructions = [*instructions, *self._outflow.logs_arrived(), *self._feed.logs_arrived()]
            if self._unstored is not None and not self.store.incomplete:
                instructions += self._store_snapshot(*self._unstored)
        return instructions

    def fail(self, problem: BaseException) -> list[io.Instruction]:
        """The task or the link has raised an error: reports it to the coordinator, which decides what to do."""
        if self.state is not TaskState.FAILED:
            self._enter(LinkCause.ERROR)
        self._status.failure = control.failed(self.process, self.task_id, problem)
        return [io.SendToCoordinator(self._status.failure)]

    def _enter(self, cause: LinkCause) -> None:
        self.state = LINK_STATES.after(self.state, cause, f"the link of {self.task_id}", self._last)
        self._handlers = LINK_EVENTS.row(self.state)

    # ---- the state to start from

    def _on_prepare(self, message: control.Prepare) -> list[io.Instruction]:
        return self._restoring.prepare(message.restore)

    def _on_follow(self, message: control.Follow) -> list[io.Instruction]:
        return self._following.follow(message)

    def _on_feed_received(self, event: io.FeedReceived) -> list[io.Instruction]:
        return self._restoring.feed_received(event)

    def _is_of_a_closed_feed(self, event: io.FeedReceived) -> bool:
        return event.connection != self._following.connection

    def _on_feed_point_loaded(self, event: task.FeedPointLoaded) -> list[io.Instruction]:
        return self._restoring.feed_point_loaded(event)

    def _on_feed_point_taken(self, event: task.FeedPointTaken) -> list[io.Instruction]:
        return self._feed.taken(event, self._epochs.all_prepared)

    def _on_promote(self, message: control.Promote) -> list[io.Instruction]:
        restore = message.restore
        self._round, self.attempt = message.round, message.attempt
        self._numbering, self._run = message.numbering, message.run
        self._complete_at_begin = None
        self._held_logs.become(message.attempt)
        self._enter(LinkCause.PROMOTED)
        self._mark(restore.marks)
        acquisitions = self._causal_outputs.acquire(message.attempt, restore.checkpoint, lineage_of(message.numbering))
        for index, peer in enumerate(message.inputs):
            self.inputs[index].follow(peer)
        loads = self._restoring.promote(message.attempt, restore)
        return acquisitions + loads + (self._start() if self._restoring.ready else [])

    def _on_loaded_ahead(self, event: io.Loaded) -> list[io.Instruction]:
        return self._restoring.loaded_ahead(event)

    def _on_loaded(self, event: io.Loaded) -> list[io.Instruction]:
        return [*self._restoring.loaded(event), *self._start()]

    def _on_not_loaded_ahead(self, event: io.LoadFailed) -> list[io.Instruction]:
        return self._restoring.not_loaded_ahead(event)

    def _on_not_loaded(self, event: io.LoadFailed) -> list[io.Instruction]:
        return self._restoring.not_loaded(event)

    def _is_superseded(self, event: io.Loaded | io.LoadFailed) -> bool:
        return not self._restoring.is_awaited(event.restore)

    def _start(self) -> list[io.Instruction]:
        """The task has its state: commits the results that it names, connects, serves waiting receivers, and begins if
        the log has arrived, too."""
        restore, fed = self._restoring.requested, self._restoring.fed
        assert restore is not None
        assert self.attempt is not None
        self._checkpointing.restored(restore.frames)
        self._catching_up.restore([channel.next_seq for channel in self.inputs])
        self._held_logs.restore(self._restoring.logs)
        self._outflow.started = True
        if restore.fallback is not None:
            self._may_fall_back(restore, restore.fallback)
        safe = restore.fallback or restore
        instructions = self._adopt(fed, restore.checkpoint) if fed is not None else []
        if self._commits and restore.checkpoint:
            instructions.append(io.Commit(safe.checkpoint, safe.committables))
        if not self._in_loop:
            instructions += self._subscribe(self.attempt)
            if fed is None:
                instructions += self._serve()
        return instructions + self._answer() + self._begin()

    def _adopt(self, fed: FeedState, completed: int) -> list[io.Instruction]:
        """The task starts at a feed point, with what was prepared and logged before it."""
        for checkpoint, committables in fed.committables.items():
            if checkpoint > completed:
                self._epochs.prepared(checkpoint, committables)
        self._held_logs.fed()
        return [io.AdoptState(fed.operators)] if self._commits else []

    def _subscribe(self, attempt: Attempt) -> list[io.Instruction]:
        """Subscribes to the senders. A task of a loop does so only after its own log has arrived. Logs of other tasks
        come with the first frames, and they depend on its log. If its log were lost after that, neither this process
        nor those to which it passed the other logs on could use them."""
        instructions = self._connections.open(attempt)
        self._check_opened()
        return instructions

    def _serve(self) -> list[io.Instruction]:
        """Serves the receivers, also those that wait. A task that starts at a feed point has frames that depend on its
        log: it serves nobody before it has all of that."""
        return [i for subscription in self._connections.serve() for i in self._on_subscribed(subscription)]

    def _may_fall_back(self, restore: control.Restore, fallback: control.Fallback) -> None:
        assert self._restoring.restart_point is not None
        self._epochs.restored(restore.checkpoint, self._restoring.restart_point, restore.committables)
        for channel, covered in zip(self.inputs, fallback.covered, strict=True):
            channel.cover(covered)

    def _on_replay(self, message: control.Replay) -> list[io.Instruction]:
        self._replay = message
        self._status.note_checkpoint(max(message.aborted, default=0))
        self._held_logs.replay(message)
        self._recording.start(self._own_log(message))
        return self._begin() if self._restoring.ready else []

    def _is_of_another_round(self, message: control.Replay) -> bool:
        return message.round != self._round or self._replay is not None

    def _own_log(self, message: control.Replay) -> list[LogSegment]:
        """The task's own log since its restart point. One that is only recorded is held by nobody who is asked in a
        round: a process that starts at a feed point has it from the feed."""
        restore, fed = self._restoring.requested, self._restoring.fed
        if self._logged or fed is None or restore is None:
            return message.log
        return [segment for segment in fed.record if segment.epoch >= restore.checkpoint]

    def _begin(self) -> list[io.Instruction]:
        if self._replay is None or self.attempt is None:
            return []
        by_channel = {output.channel: output for output in self.outputs}
        for expectation in self._replay.expected:
            by_channel[expectation.channel].expect(expectation)
        self._catching_up.begin(self.attempt)
        self._enter(LinkCause.BEGUN)
        at_landmark = not any(output.has_restored_frames for output in self.outputs)
        log, fed = self._own_log(self._replay), self._restoring.begin()
        aborted, numbering = self._replay.aborted, self._numbering
        begin = task.Begin(self.attempt, log, aborted, numbering, at_landmark, fed=fed, run=self._run)
        held_back = [] if self._outflow.may_produce else [io.SendToTask(task.MayProduce(False))]
        opened = self._subscribe(self.attempt) if self._in_loop else []
        completed = self._on_complete(self._complete_at_begin) if self._complete_at_begin is not None else []
        return [io.SendToTask(begin), *held_back, *opened, *self._serve(), *completed]

    # ---- connections

    def _on_connected(self, event: io.Connected) -> list[io.Instruction]:
        if event.input == self._following.input:
            return self._following.connected(event)
        return self._connections.connected(event) + self._inflow.connected(event)

    def _on_lost(self, event: io.Lost) -> list[io.Instruction]:
        self._feed.lost(event.connection)
        return self._following.lost(event) + self._connections.lost(event) + self._outflow.check_pressure()

    def _on_subscribed(self, event: io.Subscribed) -> list[io.Instruction]:
        if self._feed.is_for(event.hello):
            begun = None if self.state in BEFORE_BEGIN else self.attempt
            return self._feed.subscribed(event, begun) + self._feed.request()
        output, instructions = self._connections.admit(event)
        return instructions if output is None else instructions + self._outflow.serve(output, event)

    def _on_sever(self, message: control.Sever) -> list[io.Instruction]:
        """Closes connections first and answers then, so that nothing can arrive that the answer does not contain."""
        self._round = message.round
        instructions = self._truncate(message.completed)
        instructions += self._connections.close_older(dict(message.attempts))
        self._unanswered_sever = message
        instructions += self._answer()
        replaced, renumbering = self._connections.replace(message.replacements)
        return instructions + replaced + self._inflow.void(renumbering) + self._outflow.check_pressure()

    def _answer(self) -> list[io.Instruction]:
        """Answers once the contents of the causal outputs are loaded: this process answers as a holder of them, too."""
        if self._unanswered_sever is None or not self._causal_outputs.ready:
            return []
        if self._stores_logs and self.state in BEFORE_BEGIN and not self._restoring.ready:
            return []
        message, self._unanswered_sever = self._unanswered_sever, None
        answer = self._held_logs.answer(self.process, message)
        if (fed := self._restoring.fed) is not None:
            answer = msgspec.structs.replace(answer, starts_in=fed.position.epoch)
        return [io.SendToCoordinator(answer)]

    # ---- frames

    def _on_arrived(self, event: io.Arrived) -> list[io.Instruction]:
        self._status.note_checkpoint(event.header.checkpoint)
        instructions = self._inflow.arrived(event)
        if self.state is TaskState.CONNECTING:
            self._check_opened()
        return instructions

    def _is_of_a_closed_connection(self, event: io.Arrived) -> bool:
        return self._inflow.channel_on(event.connection) is None

    def _check_opened(self) -> None:
        if self.state is TaskState.CONNECTING and self._inflow.opened:
            self._enter(LinkCause.INPUTS_OPENED)

    def _on_acknowledged(self, event: io.Acknowledged) -> list[io.Instruction]:
        given = event.acknowledgement
        instructions: list[io.Instruction] = []
        for output in self.outputs:
            if output.connection == event.connection:
                if output.acknowledged(given):
                    instructions.append(io.SendToTask(task.FrameRowsRequested(output.index, given.rows_at_once)))
                if given.snapshot != output.snapshot:
                    output.snapshot = given.snapshot
                    instructions += self._checkpointing.reported()
                self._outflow.cover(output, given.covered)
                instructions += self._outflow.pump(output)
        return instructions + self._feed.acknowledged(event) + self._outflow.check_pressure()

    def _on_frames_taken(self, event: task.FramesTaken) -> list[io.Instruction]:
        instructions = self._inflow.taken(event)
        new = self._catching_up.frames_taken(event)
        if self.state in (TaskState.RUNNING, TaskState.FINISHED):
            instructions += self._catching_up.report_running(self._round, 0)
        if new and not self.outputs:
            instructions += self._catching_up.report_effect()
        return instructions

    def _has_other_numbers(self, event: task.FramesTaken) -> bool:
        return self._inflow.has_other_numbers(event)

    def _on_produced(self, event: task.Produced) -> list[io.Instruction]:
        if event.log is not None:
            segment = self._held_logs.numbered(event.log)
            self._recording.produced(segment)
            if self._logged:
                self.store.append(segment)
        sent, written = self._outflow.produced(event), self._causal_outputs.published(event.published)
        return [*sent, *self._feed.cut(event.frames), *written, *self._outflow.check_pressure()]

    def _on_output_acquired(self, event: io.OutputAcquired) -> list[io.Instruction]:
        self._causal_outputs.acquired(event)
        if (fed := self._restoring.fed) is not None:
            restart_point, start_at = self._restoring.restart_point, fed.progress.published
            self._causal_outputs.check_visible(
                restart_point.published if restart_point else [0] * len(start_at), start_at
            )
        return self._answer()

    def _on_output_written(self, event: io.OutputWritten) -> list[io.Instruction]:
        written = self._causal_outputs.written(event)
        return [*written, *self._feed.written(), *self._outflow.check_pressure()]

    def _on_frames_moved(self, event: FramesMoved) -> list[io.Instruction]:
        if isinstance(event, io.FramesRead) and event.checkpoint:
            return self._checkpointing.read(event)
        return self._outflow.moved(event)

    # ---- checkpoints

    def _on_trigger(self, message: control.TriggerCheckpoint) -> list[io.Instruction]:
        self._status.note_checkpoint(message.checkpoint)
        return [io.SendToTask(task.TriggerRequest(message.checkpoint, message.purpose))]

    def _on_abort(self, message: control.AbortCheckpoint) -> list[io.Instruction]:
        self._status.note_checkpoint(message.checkpoint)
        self._checkpointing.abort(message.checkpoint)
        return [io.SendToTask(task.AbortRequest(message.checkpoint)), *self._outflow.aborted(message.checkpoint)]

    def _on_snapshot_taken(self, event: task.SnapshotTaken) -> list[io.Instruction]:
        snapshot = self._epochs.add(event)
        self._state_sizes = {name: size for name, state in snapshot.operators.items() if (size := size_of(state))}
        self._status.note_checkpoint(snapshot.checkpoint)
        if not event.persist:
            return []
        self._snapshot_times[snapshot.checkpoint] = event.times
        for output in self.outputs:
            output.check_caught_up()
        return self._store_snapshot(snapshot, event.progress)

    def _store_snapshot(self, snapshot: TaskSnapshot, progress: TaskProgress) -> list[io.Instruction]:
        """Makes a snapshot durable. If it needs logs that may be incomplete, it waits for these: the coordinator waits
        for the snapshot, and does not trigger another."""
        assert self.attempt is not None
        self._unstored = None
        if self._recorded:
            record, without_log = self._recording.taken(snapshot.checkpoint), self._held_logs.restarted_without_log
            snapshot = replace(snapshot, record=record, without_log=without_log)
        if self._stores_logs:
            logs = self._held_logs.to_store()
            if logs is None:
                self._unstored = snapshot, progress
                return []
            snapshot = replace(snapshot, logs=logs)
        instructions = self._causal_outputs.flush()
        instructions += self._checkpointing.snapshot_taken(snapshot, progress, self.attempt)
        instructions += self._inflow.report_snapshot(snapshot.checkpoint, progress)
        if self._coordinated:
            instructions += self._outflow.passed(snapshot.checkpoint)
        return instructions

    def _on_persisted(self, event: io.Persisted) -> list[io.Instruction]:
        times = self._snapshot_times.get(event.handle.checkpoint, task.SnapshotTimes())
        self._snapshot_times = {n: t for n, t in self._snapshot_times.items() if n > event.handle.checkpoint}
        measured = event.persist_ms, event.persist_cpu_ms, times.sync_ms, times.blocked_ms, times.busy_ms
        snapshotted = control.Snapshotted(self.process, event.handle, *measured, requests=event.requests)
        report = io.SendToCoordinator(snapshotted)
        return [report, *self._checkpointing.persisted(event.handle)]

    def _on_persist_failed(self, event: io.PersistFailed) -> list[io.Instruction]:
        report = io.SendToCoordinator(
            control.SnapshotFailed(self.process, event.checkpoint, event.reason, event.unavailable)
        )
        return [report, *self._checkpointing.not_persisted()]

    def _on_complete(self, message: control.Complete) -> list[io.Instruction]:
        return [*self._commit(message.checkpoint), *self._truncate(message), *self._outflow.check_pressure()]

    def _on_complete_before_begin(self, message: control.Complete) -> list[io.Instruction]:
        """The snapshot from which the task restarts has become one to which it never has to go back (E9): what it has
        prepared is committed when it begins."""
        self._complete_at_begin = message
        return []

    def _is_covered(self, message: control.Complete) -> bool:
        restore = self._restoring.requested
        return restore is None or restore.fallback is None or message.checkpoint <= restore.fallback.checkpoint

    def _commit(self, checkpoint: int) -> list[io.Instruction]:
        if not self._commits:
            return []
        uncommitted = self._epochs.uncommitted(checkpoint)
        self._epochs.committed(checkpoint)
        return [io.Commit(checkpoint, uncommitted)]

    def _mark(self, marks: Iterable[StableMark]) -> None:
        for mark in marks:
            self.store.mark(mark)

    def _truncate(self, completed: control.Complete) -> list[io.Instruction]:
        """Drops what a completed checkpoint covers, and acknowledges this to the senders."""
        self._mark(completed.marks)
        self._recording.complete(completed.checkpoint)
        if (progress := self._epochs.complete(completed.checkpoint)) is None:
            return []
        self._restoring.restart_point = progress
        self._held_logs.complete()
        self._outflow.complete(completed.checkpoint)
        return self._inflow.cover(progress)

    # ---- loops

    def _on_probe(self, message: control.Probe) -> list[io.Instruction]:
        return [io.SendToTask(task.ProbeRequest(message.number))]

    def _on_loop_counts(self, event: task.LoopCounts) -> list[io.Instruction]:
        cut, taken = list(event.cut), list(event.taken)
        return [
            io.SendToCoordinator(control.Probed(self.process, event.number, event.passive, event.epoch, cut, taken))
        ]

    def _on_end_loop(self, message: control.EndLoop) -> list[io.Instruction]:
        return [io.SendToTask(task.LoopEndRequest())]

    def _on_align_source(self, message: control.AlignSource) -> list[io.Instruction]:
        return [io.SendToTask(task.SourceLimit(message.limit_us))]

    def _on_watermark_reached(self, event: task.WatermarkReached) -> list[io.Instruction]:
        return [io.SendToCoordinator(control.SourceReached(self.process, event.reached_us))]

    def _on_end_source(self, message: control.EndSource) -> list[io.Instruction]:
        return [io.SendToTask(task.SourceEndRequest())]

    def _on_no_further_effect(self, event: task.NoFurtherEffect) -> list[io.Instruction]:
        return [io.SendToCoordinator(control.Satisfied(self.process, event.epoch))]

    def _on_commit_done(self, event: io.CommitDone) -> list[io.Instruction]:
        self._status.committed = event.checkpoint
        return [io.SendToCoordinator(control.Committed(self.process, event.checkpoint))]

    # ---- the rest

    def _on_state_changed(self, event: task.StateChanged) -> list[io.Instruction]:
        if event.state is TaskState.RUNNING:
            self._enter(LinkCause.LOG_USED_UP)
            self._held_logs.replayed()
            return self._catching_up.report_running(self._round, event.rows_replayed)
        if event.state is TaskState.FINISHED:
            self._enter(LinkCause.INPUT_ENDED)
            return [io.SendToCoordinator(control.Drained(self.process))]
        return []

    def observed(self, event: task.Observed) -> task.Observed:
        """The part of an observation that counts for metrics."""
        return self._catching_up.observed(event, self.state is TaskState.REPLAYING)

    @property
    def frames_at_stake(self) -> int:
        """The number of frames sent since the restart point; of a task without outputs, of frames received."""
        return self._status.frames_at_stake

    @property
    def counters(self) -> ProcessCounters:
        """Whether the process is active, the size of the logs held, and what it has sent and retains."""
        return msgspec.structs.replace(
            self._outflow.counters,
            active=self.state not in BEFORE_BEGIN,
            attempt=self.attempt,
            log_bytes=self.store.size_bytes,
            feed_bytes=self._feed.sent_bytes,
            fed_bytes=self._following.size_bytes,
            frames_at_stake=self.frames_at_stake,
            state=self._state_sizes,
        )

    @property
    def feed_position(self) -> task.FeedPosition | None:
        """The feed point at which the task will start; None if it starts at its restart point, or has begun."""
        fed = self._restoring.fed
        return fed.position if fed is not None else None

    @property
    def uncovered(self) -> list[int]:
        """Checkpoints for which it has taken a snapshot and that are not known to be complete."""
        return self._epochs.checkpoints

    @property
    def parked(self) -> int:
        """The number of subscriptions that wait for this process to become the attempt they name."""
        return self._connections.parked

    def _on_ping(self, message: control.Ping) -> list[io.Instruction]:
        return [io.SendToCoordinator(control.Pong(self.process, message.number, self.counters))]

    def _on_status_request(self, message: control.StatusRequest) -> list[io.Instruction]:
        """Reports the status, and repeats requests that may have been lost with the former coordinator."""
        incarnations = self.store.incarnations
        report = self._status.report(self.state, self.attempt, self._round, self._replay, incarnations)
        return [io.SendToCoordinator(report), *self._outflow.repeat_requests(), io.SendToTask(task.GoOn())]

    def tail(self, failed: Manifest | None) -> RecordTail | None:
        """What the process holds of logs that no snapshot has recorded yet, maybe nothing: so a replay finds out which
        files are missing. None if it has no task, or records none. ``failed``: see ``RecordTail.interval``."""
        if failed is None or self.attempt is None or not self._recording.on:
            return None
        own = self.task_id.log_id
        logs = [*self._recording.since(0), *self.store.since(0, lambda log: log != own)]
        return RecordTail(self.task_id, self.attempt, logs, failed)

    def _on_stop(self, message: control.Stop) -> list[io.Instruction]:
        tail = self.tail(message.failed)
        return [*([io.KeepTail(tail)] if tail is not None else []), io.Shutdown(message.reason)]


_Entries = dict[TaskState, Ignored | Impossible]


def _in(states: Iterable[TaskState], entry: Ignored | Impossible) -> _Entries:
    return dict.fromkeys(states, entry)


_AFTER_BEGIN = [state for state in TaskState if state not in BEFORE_BEGIN]
_AFTER_PROMOTION = [state for state in TaskState if state is not TaskState.STANDBY]
_HAS_BEGUN = _in(_AFTER_BEGIN, Ignored("the task has begun, and keeps its state"))
_IS_PROMOTED = _in(_AFTER_PROMOTION, Ignored("the process is promoted, and has its restart point"))
_NO_ATTEMPT = _in([TaskState.STANDBY], Impossible("a standby has no attempt, and so neither connections nor results"))
_VOID = _in([TaskState.FAILED], Ignored("the task has failed, and what it still says is void"))
_OF_THE_TASK = _VOID | _in(BEFORE_BEGIN, Impossible("the task has not begun"))
_CLOSED = "its connection is closed"
_SUPERSEDED = "another state is requested by now"
_COVERED = "the restart point of the process covers at least as much"

LINK_EVENTS: EventTable[LinkMachine, TaskState, list[io.Instruction]] = EventTable(TaskState)
_on = LINK_EVENTS.on
_on(control.Prepare, LinkMachine._on_prepare, _IS_PROMOTED)
_on(control.Follow, LinkMachine._on_follow, _IS_PROMOTED)
_on(control.Promote, LinkMachine._on_promote, _IS_PROMOTED)
_on(
    control.Replay,
    Unless(LinkMachine._is_of_another_round, "it is of an earlier round, or is sent again", LinkMachine._on_replay),
    _HAS_BEGUN,
)
_on(control.Sever, LinkMachine._on_sever)
_on(control.TriggerCheckpoint, LinkMachine._on_trigger)
_on(control.AbortCheckpoint, LinkMachine._on_abort)
_on(
    control.Complete,
    LinkMachine._on_complete,
    {
        TaskState.STANDBY: Ignored(_COVERED),
        TaskState.CONNECTING: Unless(LinkMachine._is_covered, _COVERED, LinkMachine._on_complete_before_begin),
        TaskState.FETCHING_DETERMINANTS: Unless(
            LinkMachine._is_covered, _COVERED, LinkMachine._on_complete_before_begin
        ),
    },
)
_on(control.Probe, LinkMachine._on_probe)
_on(control.EndLoop, LinkMachine._on_end_loop)
_on(control.AlignSource, LinkMachine._on_align_source)
_on(control.EndSource, LinkMachine._on_end_source)
_on(control.Stop, LinkMachine._on_stop)
_on(control.Ping, LinkMachine._on_ping)
_on(control.StatusRequest, LinkMachine._on_status_request)
_on(io.Subscribed, LinkMachine._on_subscribed)
_on(io.Connected, LinkMachine._on_connected)
_on(
    io.FeedReceived,
    Unless(LinkMachine._is_of_a_closed_feed, _CLOSED, LinkMachine._on_feed_received),
    _IS_PROMOTED,
)
_on(io.Arrived, Unless(LinkMachine._is_of_a_closed_connection, _CLOSED, LinkMachine._on_arrived), _NO_ATTEMPT)
_on(io.Acknowledged, LinkMachine._on_acknowledged)
_on(io.Lost, LinkMachine._on_lost)
_on(
    io.Loaded,
    Unless(LinkMachine._is_superseded, _SUPERSEDED, LinkMachine._on_loaded),
    {**_HAS_BEGUN, TaskState.STANDBY: Unless(LinkMachine._is_superseded, _SUPERSEDED, LinkMachine._on_loaded_ahead)},
)
_on(
    io.LoadFailed,
    Unless(LinkMachine._is_superseded, _SUPERSEDED, LinkMachine._on_not_loaded),
    {
        **_HAS_BEGUN,
        TaskState.STANDBY: Unless(LinkMachine._is_superseded, _SUPERSEDED, LinkMachine._on_not_loaded_ahead),
    },
)
_on(io.Persisted, LinkMachine._on_persisted, _NO_ATTEMPT)
_on(io.PersistFailed, LinkMachine._on_persist_failed, _NO_ATTEMPT)
_on(io.CommitDone, LinkMachine._on_commit_done, _NO_ATTEMPT)
_on(io.OutputAcquired, LinkMachine._on_output_acquired, _NO_ATTEMPT)
_on(io.OutputWritten, LinkMachine._on_output_written, _NO_ATTEMPT)
for _kind in FRAMES_MOVED:
    _on(_kind, LinkMachine._on_frames_moved)
_on(
    task.FramesTaken,
    Unless(LinkMachine._has_other_numbers, "the channel has been numbered again since", LinkMachine._on_frames_taken),
    _OF_THE_TASK,
)
_on(task.Produced, LinkMachine._on_produced, _OF_THE_TASK)
_on(task.SnapshotTaken, LinkMachine._on_snapshot_taken, _OF_THE_TASK)
_on(task.FeedPointTaken, LinkMachine._on_feed_point_taken, _OF_THE_TASK)
_on(task.FeedPointLoaded, LinkMachine._on_feed_point_loaded, _IS_PROMOTED)
_on(task.LoopCounts, LinkMachine._on_loop_counts, _VOID)
_on(task.WatermarkReached, LinkMachine._on_watermark_reached, _VOID)
_on(task.NoFurtherEffect, LinkMachine._on_no_further_effect, _VOID)
_on(task.StateChanged, LinkMachine._on_state_changed, _VOID)
