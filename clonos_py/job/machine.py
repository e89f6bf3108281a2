"""The coordinator: the state machine that deploys a job, completes its checkpoints and recovers from failures (D7-D11).

Its states are in ``job/states.py``; what it does with each event in each state is at the end of this file.

    [*] --> STARTING
    STARTING --another coordinator was lost--> TAKING_OVER
    STARTING, RECOVERING --all tasks replay or run--> RUNNING
    STARTING, RUNNING, DRAINED, STOPPING, COMMITTING, RECOVERING, ROLLING_BACK --only a rollback is possible-->
        ROLLING_BACK
    TAKING_OVER --all have answered, not all tasks deployed--> STARTING
    TAKING_OVER --all have answered, all tasks deployed--> RECOVERING
    RUNNING --all input ended--> DRAINED
    RUNNING --a stop was requested--> STOPPING
    RUNNING, DRAINED, STOPPING --the last checkpoint is complete--> COMMITTING
    RUNNING, DRAINED, STOPPING, COMMITTING --a task failed--> RECOVERING
    ROLLING_BACK --a new generation begins--> STARTING
    any --finished, or error--> ENDED

Invariants:
- no checkpoint is pending while a round is under way;
- a replacement starts from the restart point of its task. It replays only after every survivor of the round has closed
  its connections from the failed tasks and has reported which logs and frames it holds;
- messages from processes outside the fleet are ignored: these processes are fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from clonos_py.job.checkpointing import JobSide
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import (
    CheckpointsRetired,
    EndedByFunction,
    EndJob,
    Instructions,
    JobEvent,
    JobPolicy,
    KillProcess,
    ManifestFailed,
    ManifestWritten,
    NoRoom,
    OpenGeneration,
    ProcessBusy,
    ProcessDied,
    ReportEvent,
    Send,
    StopRequested,
)
from clonos_py.job.failure_limits import FailureLimits
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.full_limits import FullLimits
from clonos_py.job.heartbeat import Heartbeat
from clonos_py.job.interval_choice import IntervalChoice
from clonos_py.job.loops import LoopEnds
from clonos_py.job.rounds import Rounds
from clonos_py.job.source_alignment import SourceAlignment
from clonos_py.job.starts import Starts
from clonos_py.job.state_mapping import mapped
from clonos_py.job.states import ALL_RUN, BEFORE_LAST, IN_ROUND, JOB_STATES, Ending, JobCause, JobState
from clonos_py.job.takeover import Takeover
from clonos_py.job.unreachable import Unreachable
from clonos_py.model import errors, messages
from clonos_py.model.coordinator_events import (
    CodeChanged,
    CoordinatorReplaced,
    Deploying,
    Finished,
    FunctionHangs,
    RolledBack,
    RoomAwaited,
    SourceStaysEnded,
    SpillFailed,
    StandbyLost,
    StandbyUnready,
    StorageAwaited,
    TaskKeepsDying,
)
from clonos_py.model.errors import ProtocolError, Remedy
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToCoordinator
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.snapshots import Manifest
from clonos_py.model.states import Event, EventTable, Ignored, LastEvents, Unless
from clonos_py.model.times import MAX_TIME

_NO_ROLLBACK = (
    "snapshots that tasks have taken alone fit together only if replays repeat what was done, so the job cannot roll "
    "back: make its operators deterministic, see 'clonos check', and begin again with --fresh"
)


class JobMachine:
    """The coordinator of one job: takes events, returns instructions. Its parts share one ``CoordinatorContext``."""

    def __init__(
        self,
        plan: PhysicalPlan,
        policy: JobPolicy,
        checkpointing: JobSide,
        manifest: Manifest | None = None,
        generation: int = 1,
        code_digest: str = "",
    ) -> None:
        """``checkpointing``: creates the coordinator's side of the checkpoint protocol. Raises UnmappedStateError if
        ``manifest`` holds state for which the plan has no operator."""
        self.state = JOB_STATES.initial
        self._last = LastEvents()
        self._plan, self._policy = plan, policy
        resumed = mapped(manifest, plan, policy.state_mapping, code_digest, policy.lineage)
        self._completed = CompletedCheckpoint(plan, resumed, code_digest, policy.lineage)
        self._context = CoordinatorContext(plan, policy, self._completed, generation)
        self._protocol = checkpointing(self._context)
        self._fleet = self._context.fleet
        self._rounds = Rounds(self._context, self._protocol, self._last)
        self._heartbeat = Heartbeat(self._context)
        self._starts = Starts(self._context)
        self._unreachable = Unreachable(self._context)
        self._takeover = Takeover(self._context, self._protocol)
        self._interval: IntervalChoice | None = None
        """Chooses the checkpoint interval, if the policy leaves it to the job."""
        self._loops = LoopEnds(self._context, self._protocol, self._trigger, self._last)
        self._alignment = SourceAlignment(self._context)
        self._full_limits = FullLimits(self._context, self._protocol, self._trigger)
        self._deferred: list[ToCoordinator | JobEvent] = []
        self._drained: set[int] = set()
        """Processes whose tasks have read all of their input."""
        self._committed: dict[int, int] = {}
        """By process: the newest epoch whose results it has committed."""
        self._ending = Ending()
        self._due: Purpose | None = None
        """The checkpoint to trigger when the round under way has ended."""
        self._awaits_storage = False
        """Whether it was reported that storage does not answer for a manifest."""
        self._limits = FailureLimits(policy, plan.tasks)
        self._rollback_reason = ""
        """Why the job is rolling back."""
        self._committing = {TaskId(v.name, i) for v in plan.vertices if v.commits for i in range(v.parallelism)}

    # ---- entry points

    @property
    def heartbeat_us(self) -> int:
        """The interval between the pings that the coordinator sends to each process; 0: it sends none."""
        return self._policy.heartbeat_us

    def start(self, now_us: int, prepared: Collection[TaskProcess] = ()) -> Instructions:
        """Starts the deployment. ``prepared``: processes that were started ahead (``preparation.py``)."""
        self._begin(now_us)
        for process in prepared:
            self._fleet.take(process, now_us)
        changed = [ReportEvent(CodeChanged(self._completed.number))] if self._completed.code_changed else []
        ended = [ReportEvent(SourceStaysEnded(name)) for name in self._completed.stay_ended]
        out = [*changed, *ended, *self._deploy()]
        return out + self._advance(self._rounds.advance) if prepared else out

    def take_over(self, roster: Mapping[int, TaskId], now_us: int) -> Instructions:
        """Continues in place of a lost coordinator. ``roster``: every process that may still run, by number. The driver
        reports those that have ended."""
        self._begin(now_us)
        self._enter(JobCause.COORDINATOR_LOST)
        return self._takeover.request(roster) + self._settle()

    def handle(self, event: ToCoordinator | JobEvent, now_us: int) -> Instructions:
        """Processes one message or event and returns the instructions that follow."""
        self._context.advance_clock(now_us, self.wake_us)
        return self._with_interval(self._handle(event))

    def _begin(self, now_us: int) -> None:
        self._context.begin(now_us)
        if self._policy.auto_interval is not None:
            self._interval = IntervalChoice(self._context, self._policy.auto_interval)

    def _with_interval(self, out: Instructions) -> Instructions:
        return out if self._interval is None else out + self._interval.reported(out)

    def _handle(self, event: ToCoordinator | JobEvent) -> Instructions:
        handler = JOB_EVENTS.row(self.state).get(type(event))
        if handler is None:
            raise JOB_EVENTS.broken("the job", self.state, event, self._last)
        self._last.add(type(event))
        return handler(self, event) if self._admit(event) else []

    def _admit(self, event: ToCoordinator | JobEvent) -> bool:
        """Notes that the process of an event is alive. Returns False for processes outside the fleet: they are
        fenced."""
        if self.state is JobState.TAKING_OVER or isinstance(event, _NOT_OF_A_PROCESS):
            return True
        process = self._fleet.get(event.process)
        if process is not None:
            process.last_seen_us = self._context.now_us
        return process is not None

    def tick(self, now_us: int) -> Instructions:
        """Processes the passing of time: heartbeats, checkpoint intervals and timeouts, processes that do not start."""
        self._context.advance_clock(now_us, self.wake_us)
        if self.state is JobState.ENDED:
            return []
        if self.state is JobState.TAKING_OVER:
            late = self._takeover.until_us <= self._context.now_us
            return self._with_interval(self._takeover.give_up() + self._settle()) if late else []
        silent, out = self._heartbeat.beat()
        for process in silent:
            out += self._replace(process.number, "silent for the heartbeat timeout")
        for step in (self._time_checkpoints, self._advance_loops, self._time_starts):
            out += step()
        if self.state in ALL_RUN:
            out += self._alignment.advance()
        return self._with_interval(out)

    @property
    def wake_us(self) -> int:
        """When ``tick`` must be called next, on the driver's clock."""
        due_us = min(self._heartbeat.next_us, self._protocol.wake_us, self._loops.wake_us, self._takeover.until_us)
        if self.state in ALL_RUN:
            due_us = min(due_us, self._alignment.wake_us)
        return min(due_us + self._context.absent_us, MAX_TIME)

    @property
    def generation(self) -> int:
        return self._context.generation

    @property
    def checkpoint(self) -> int:
        """The last completed checkpoint; 0: there is none."""
        return self._completed.number

    @property
    def processes(self) -> Mapping[int, TaskProcess]:
        """The processes of the job, by number."""
        return self._fleet.processes

    @property
    def owners(self) -> dict[TaskId, int]:
        """By task: the number of its active or promoted process."""
        return {process.task: process.number for process in self._fleet.with_role(Role.PROMOTED, Role.ACTIVE)}

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the collections that could grow without bound: aborted checkpoints, pings that may still be
        answered, lost connections."""
        return {
            "aborted": len(self._protocol.void),
            "pings": self._heartbeat.unanswered,
            "lost_connections": self._unreachable.failing,
        }

    @property
    def interval(self) -> Manifest | None:
        """See ``CompletedCheckpoint.interval``."""
        return self._completed.interval(self.generation)

    def _enter(self, cause: JobCause) -> None:
        self.state = JOB_STATES.after(self.state, cause, "the job", self._last)

    def _end(self, error: str | None = None, message: str = "", traceback: str = "") -> Instructions:
        self._enter(JobCause.ENDED)
        stop = messages.Stop(message or "the job has finished", self.interval if error is not None else None)
        stopped = error is None and self._ending.purpose is Purpose.STOP
        finished = [ReportEvent(Finished(stopped))] if error is None else []
        checkpoint = 0 if error is None else self._protocol.completed.number
        return [
            *(Send(number, stop) for number in self._fleet.processes),
            *finished,
            EndJob(error, message, traceback, stopped, checkpoint),
        ]

    # ---- takeover from a lost coordinator

    def _status_reported(self, message: messages.StatusReport) -> Instructions:
        self._takeover.answer(message)
        return self._settle()

    def _started_meanwhile(self, message: messages.Started) -> Instructions:
        process = self._fleet.get(message.process)
        if process is None:
            return self._defer(message)
        process.address, process.host_process = message.address, message.host_process
        return self._settle()

    def _died_meanwhile(self, event: ProcessDied) -> Instructions:
        self._takeover.process_died(event.process)
        return self._settle()

    def _defer(self, event: Any) -> Instructions:
        """Keeps an event until the roles of all processes are known."""
        self._deferred.append(event)
        return self._settle()

    def _settle(self) -> Instructions:
        """Once all processes have answered: the job continues from the state that they reported."""
        if not self._takeover.complete:
            return []
        self._heartbeat.start()
        out = [*self._takeover.settle(self._rounds), ReportEvent(CoordinatorReplaced())]
        self._drained, self._committed = self._takeover.drained, self._takeover.committed
        self._enter(JobCause.NOT_DEPLOYED if self._rounds.deploying else JobCause.DEPLOYED)
        out += self._advance(self._rounds.advance)
        deferred, self._deferred = self._deferred, []
        for event in [*self._takeover.failures(), *deferred]:
            out += self._handle(event)
        return out

    # ---- deployment and rounds

    def _deploy(self, reuse: Mapping[TaskId, int] | None = None) -> Instructions:
        self._heartbeat.start()
        return self._rounds.deploy(reuse)

    def _on_started(self, message: messages.Started) -> Instructions:
        process = self._fleet.processes[message.process]
        process.address, process.host_process = message.address, message.host_process
        self._starts.process_started()
        out = self._report_deployment() + self._advance(self._rounds.advance)
        if process.role is Role.STANDBY:
            out += self._protocol.prepare(process) + self._rounds.follow(process)
        return out + self._rounds.dismiss_co_located()

    def _report_deployment(self) -> Instructions:
        if not self._rounds.deploying:
            return []
        processes = self._fleet.processes.values()
        up = sum(process.address is not None for process in processes)
        missing = self._rounds.missing
        return [ReportEvent(Deploying(up, len(processes), len(missing), missing[0] if missing else None))]

    def _time_starts(self) -> Instructions:
        """Handles processes that did not start in time. The job ends if a failed task still waits for a new process.
        Where only a standby is missing, or a task could not restart in its former host process, another process is
        started."""
        overdue = self._starts.overdue() if self.state is not JobState.ENDED else []
        failed = {process.task for process in overdue if not process.reuses}
        waited_for = sorted(failed.intersection(self._rounds.missing))
        if waited_for:
            return self._end(errors.ClusterError.__name__, self._starts.complaint(waited_for))
        return [i for process in overdue for i in self._replace(process.number, "it has not started")]

    def _on_prepared(self, message: messages.Prepared) -> Instructions:
        self._fleet.processes[message.process].prepared = message.checkpoint
        return self._rounds.dismiss_co_located() + self._separate_tasks()

    def _separate_tasks(self) -> Instructions:
        """Has the standby of a task that shares its host process take over. The task has just been snapshotted, so that
        there is little to replay."""
        may_leave = self.state in (JobState.RUNNING, JobState.DRAINED)
        leaves = self._rounds.process_to_leave() if may_leave else None
        if leaves is None:
            return []
        return [self._context.dismiss(leaves), *self._lose(leaves, "its process has another task", planned=True)]

    def _on_not_prepared(self, message: messages.NotPrepared) -> Instructions:
        """A standby could not load its checkpoint. It is not replaced, since another process would read the same
        storage: it tries again with the next checkpoint, or when it is promoted. A standby that was only too slow, so
        that its checkpoint had been deleted, has been sent the next one already."""
        task = self._fleet.processes[message.process].task
        return [ReportEvent(StandbyUnready(task, message.checkpoint, message.reason))]

    def _is_of_the_past(self, message: messages.NotPrepared) -> bool:
        return message.checkpoint != self._protocol.epoch(self._fleet.processes[message.process].task)

    def _on_no_room(self, event: NoRoom) -> Instructions:
        process = self._fleet.processes[event.process]
        process.lacks_room = event.reason
        return [ReportEvent(RoomAwaited(process.task, process.shares, event.reason))] if event.reason else []

    def _on_died(self, event: ProcessDied) -> Instructions:
        return self._remove(event.process, event.reason)

    def _remove(self, number: int, reason: str) -> Instructions:
        process = self._fleet.remove(number)
        if process is None:
            return []
        if process.role is not Role.STANDBY:
            return [*self._lose(process, reason), *self._count_death(process.task, reason)]
        lost = ReportEvent(StandbyLost(process.task, reason))
        return [lost, *self._rounds.replace_standby(process.task), *self._advance(self._rounds.advance)]

    def _count_death(self, task: TaskId, reason: str) -> Instructions:
        times = self._limits.died(task)
        return [ReportEvent(TaskKeepsDying(task, times, reason))] if times is not None else []

    def _lose(self, process: TaskProcess, reason: str, planned: bool = False) -> Instructions:
        """The process of a task is no longer part of the job: a round begins."""
        self._loops.reset()
        self._full_limits.full.pop(process.task, None)
        out = self._drop_standbys_without_room(process.task) + self._rounds.fail(process, reason, planned)
        if self.state in ALL_RUN:
            self._enter(JobCause.TASK_FAILED)
        if self._protocol.writing is None:
            out += self._protocol.abort("a task failed")
        return out + self._advance(self._rounds.advance)

    def _drop_standbys_without_room(self, task: TaskId) -> Instructions:
        """They were requested with what a standby needs, which is less than the task does."""
        dropped = [standby for standby in self._fleet.standbys(task) if standby.lacks_room]
        for standby in dropped:
            self._fleet.remove(standby.number)
        return [KillProcess(standby.number) for standby in dropped]

    def _on_held_logs_report(self, message: messages.HeldLogsReport) -> Instructions:
        return self._advance(lambda: self._rounds.answer(message))

    def _advance(self, course: Callable[[], Instructions]) -> Instructions:
        """Runs one step of the recovery round. The job runs again when the round has ended."""
        try:
            out = course()
        except ProtocolError as problem:
            return self._roll_back(str(problem), counted=not self._protocol.all_go_back)
        if self._rounds.over and self.state in IN_ROUND:
            self._enter(JobCause.ROUND_OVER)
            self._protocol.begin()
            out += self._go_on()
        return out

    def _go_on(self) -> Instructions:
        """Takes the steps that had to wait: a requested checkpoint, those to the end of a loop or of the job."""
        self._approach_end()
        out = self._trigger(self._due) if self._due is not None else []
        return out + self._advance_loops() + self._advance_limits() + self._trigger_last()

    def _on_running(self, message: messages.Running) -> Instructions:
        return self._rounds.replayed(self._fleet.processes[message.process].task, message.rows_replayed)

    def _on_new_effect(self, message: messages.NewEffect) -> Instructions:
        return self._rounds.new_effect(self._fleet.processes[message.process].task)

    def _roll_back(self, reason: str, counted: bool = True) -> Instructions:
        """Restarts all tasks from the last completed checkpoint, in the existing host processes (E9). This is the
        explicit last resort (D10), or the usual recovery where nothing is logged (E2). ``counted``: count it towards
        the limit of rollbacks without a completed checkpoint in between. If snapshots fit together only through their
        logs, the job ends instead (E8). While a manifest is being written, the rollback waits for it."""
        if self._plan.stores_logs:
            return self._end(errors.CannotRollBackError.__name__, f"{reason}; {_NO_ROLLBACK}")
        self._enter(JobCause.NO_REPLAY)
        self._rollback_reason = reason
        return self._go_back(counted) if self._protocol.writing is None else []

    def _go_back(self, counted: bool = True) -> Instructions:
        reason = self._rollback_reason
        out: Instructions = [ReportEvent(RolledBack(self._completed.number, reason))]
        if not self._limits.rolls_back(counted):
            complaint = (
                f"given up after {self._policy.rollbacks_max} rollbacks without a completed checkpoint: {reason}"
            )
            return out + self._end(errors.ProtocolError.__name__, complaint)
        out += self._protocol.abort("a rollback")
        reuse = self._owners_removed()
        self._drained, self._committed, self._ending = set(), {}, replace(self._ending, complete=False)
        self._loops.reset()
        self._full_limits.full.clear()
        self._context.generation += 1
        self._enter(JobCause.ROLLED_BACK)
        return [*out, OpenGeneration(self._context.generation), *self._deploy(reuse)]

    def _owners_removed(self) -> dict[TaskId, int]:
        """Removes the processes of all tasks from the fleet, so that their messages are ignored from now on."""
        owners = self.owners
        for number in owners.values():
            self._fleet.remove(number)
        return owners

    # ---- checkpoints

    def _time_checkpoints(self) -> Instructions:
        late, out = self._protocol.limit_us <= self._context.now_us, Instructions()
        if late and self._protocol.writing is not None:
            limit_s = self._policy.manifest_timeout_us / 1e6
            reason = (
                f"checkpoint storage has not answered for {limit_s:g} s while a manifest was being written: see that "
                "it works, then run the job again"
            )
            return self._end(errors.CheckpointError.__name__, reason)
        if late:
            out = self._protocol.abort("timeout") + self._advance(self._rounds.advance) + self._trigger_last()
        return out + self._protocol.tick(self.state in BEFORE_LAST)

    def _trigger(self, purpose: Purpose) -> Instructions:
        """Triggers a checkpoint if the job can take one now."""
        if self.state not in BEFORE_LAST or self._protocol.pending:
            return []
        self._due = None
        return self._protocol.trigger(purpose)

    def _on_snapshotted(self, message: messages.Snapshotted) -> Instructions:
        if self._interval is not None:
            self._interval.snapshot(message)
        self._protocol.requests.by_task(message.requests)
        return self._protocol.collect(message)

    def _on_snapshot_failed(self, message: messages.SnapshotFailed) -> Instructions:
        if message.unavailable:
            return self._protocol.not_durable(message) + self._advance(self._rounds.advance) + self._trigger_last()
        return self._protocol.abort(message.reason) + self._end(errors.CheckpointError.__name__, message.reason)

    def _on_manifest_written(self, event: ManifestWritten) -> Instructions:
        out = self._adopt(event) + self._advance(self._rounds.advance)
        return out + self._go_on() + self._maybe_finished()

    def _on_awaited_manifest_written(self, event: ManifestWritten) -> Instructions:
        return self._adopt(event) + self._go_back()

    def _is_given_up(self, event: ManifestWritten) -> bool:
        return event.checkpoint != self._protocol.writing

    def _adopt(self, event: ManifestWritten) -> Instructions:
        self._awaits_storage = False
        self._protocol.requests.by_coordinator(event.requests)
        adopted = self._protocol.written()
        self._limits.progress(adopted.tasks)
        if adopted.tasks is None:
            self._unreachable.progress()
        else:
            self._unreachable.settle()
        self._ending = replace(self._ending, complete=self._ending.complete or adopted.purpose.ends_job)
        return adopted.instructions

    def _on_checkpoints_retired(self, event: CheckpointsRetired) -> Instructions:
        return self._protocol.retired(event.problem)

    def _on_load_delayed(self, message: messages.LoadDelayed) -> Instructions:
        return [ReportEvent(StorageAwaited(self._fleet.processes[message.process].task, message.reason))]

    def _on_manifest_failed(self, event: ManifestFailed) -> Instructions:
        if event.unavailable and event.checkpoint == self._protocol.writing:
            report = [] if self._awaits_storage else [ReportEvent(StorageAwaited(None, event.reason))]
            self._awaits_storage = True
            return [*report, *self._protocol.write_again()]
        return self._protocol.abort(event.reason) + self._end(errors.CheckpointError.__name__, event.reason)

    def _on_request_checkpoint(self, message: messages.RequestCheckpoint) -> Instructions:
        out, due = self._protocol.request(self._fleet.processes[message.process].task)
        triggers = self._trigger(Purpose.REQUESTED) if due else []
        if due and not triggers:
            self._due = Purpose.REQUESTED
        return out + triggers

    def _on_spill_failed(self, message: messages.FramesNotSpilled) -> Instructions:
        return [ReportEvent(SpillFailed(self._fleet.processes[message.process].task, message.reason))]

    # ---- the end

    def _on_stop_requested(self, event: StopRequested) -> Instructions:
        if not self._ending.complete:
            self._ending = Ending(Purpose.STOP)
        self._approach_end()
        return self._trigger_last()

    def _on_drained(self, message: messages.Drained) -> Instructions:
        self._drained.add(message.process)
        return self._go_on()

    def _on_probed(self, message: messages.Probed) -> Instructions:
        self._loops.answer(self._fleet.processes[message.process].task, message)
        return self._advance_loops()

    def _on_source_reached(self, message: messages.SourceReached) -> Instructions:
        self._alignment.answer(self._fleet.processes[message.process].task, message)
        return []

    def _on_satisfied(self, message: messages.Satisfied) -> Instructions:
        self._full_limits.full.setdefault(self._fleet.processes[message.process].task, message.epoch)
        return self._advance_limits()

    def _advance_limits(self) -> Instructions:
        return self._full_limits.advance(self.owners) if self.state in ALL_RUN else []

    def _advance_loops(self) -> Instructions:
        if self.state not in ALL_RUN or not self._plan.loops:
            return []
        return self._loops.advance(frozenset(t for t, number in self.owners.items() if number in self._drained))

    def _approach_end(self) -> None:
        """Enters the state that follows from how the job is to end, if all tasks replay or run."""
        if self.state in BEFORE_LAST and self._ending.complete:
            self._enter(JobCause.LAST_COMPLETE)
        elif self.state is JobState.RUNNING and self._ending.purpose is Purpose.STOP:
            self._enter(JobCause.STOP_REQUESTED)
        elif self.state is JobState.RUNNING and self._all_drained:
            self._enter(JobCause.INPUT_ENDED)

    def _trigger_last(self) -> Instructions:
        return self._trigger(self._ending.purpose) if self.state in (JobState.DRAINED, JobState.STOPPING) else []

    @property
    def _all_drained(self) -> bool:
        owners = self.owners
        return all(owners.get(task) in self._drained for task in self._plan.tasks)

    def _on_committed(self, message: messages.Committed) -> Instructions:
        self._committed[message.process] = message.checkpoint
        return self._maybe_finished()

    def _maybe_finished(self) -> Instructions:
        owners, epoch = self.owners, self._protocol.safe_epoch
        finished = self._ending.complete and all(
            self._committed.get(owners.get(task, -1)) == epoch(task) for task in self._committing
        )
        return self._end() if finished else []

    # ---- failures and liveness that processes report

    def _on_failed(self, message: messages.Failed) -> Instructions:
        kind = errors.error_type(message.error)
        if kind.remedy is Remedy.ROLL_BACK:
            return self._roll_back(f"{message.message} ({self._operators(message.process)})")
        task = self._fleet.processes[message.process].task
        if kind.remedy in (Remedy.RETRY, Remedy.RECOVER_TASK) and self._limits.failed(task):
            return self._replace(message.process, message.message)
        return self._end(message.error, message.message, message.traceback)

    def _operators(self, process: int) -> str:
        vertex = self._plan.by_name[self._fleet.processes[process].task.vertex]
        return f"its task runs {', '.join(vertex.members)}"

    def _on_ended_by_function(self, event: EndedByFunction) -> Instructions:
        return self._end(errors.UserCodeError.__name__, event.message, event.traceback)

    def _on_function_hangs(self, message: messages.FunctionHangNoticed) -> Instructions:
        return [ReportEvent(FunctionHangs(message.reason))]

    def _replace(self, process: int, reason: str) -> Instructions:
        return [KillProcess(process), *self._remove(process, reason)]

    def _on_suspect(self, message: messages.Suspect) -> Instructions:
        """Pings the suspected task. Replaces one only if the two cannot connect for the whole connection timeout."""
        receiver, sender = self._fleet.processes[message.process], self._fleet.owner_of(message.task)
        complaint = self._unreachable.complaint(receiver, sender)
        chosen = self._unreachable.suspect(receiver, sender, message.failures)
        if chosen is None:
            return [self._heartbeat.ping(sender)]
        if complaint is not None:
            return self._end(errors.ClusterError.__name__, complaint)
        return self._replace(chosen.number, f"no data connection from {sender.task} to {receiver.task}")

    def _is_replaced(self, message: messages.Suspect) -> bool:
        receiver = self._fleet.processes[message.process]
        return receiver.role is Role.STANDBY or self._fleet.owner(message.task) is None

    def _on_pong(self, message: messages.Pong) -> Instructions:
        self._heartbeat.answered(message)
        if self._interval is not None:
            self._interval.counted(message)
        return []


_IS_A_SIGN_OF_LIFE = Ignored("that the process is alive is noted with every event of it")
_HAS_ENDED = Ignored("the job has ended")
_NO_ROUND: dict[JobState, Ignored] = dict.fromkeys(
    (*ALL_RUN, JobState.ROLLING_BACK), Ignored("no round waits for it any more")
)
_ENDS_ANYWAY = {
    JobState.DRAINED: Ignored("all input is read: the job is about to finish"),
    JobState.COMMITTING: Ignored("the last checkpoint is complete: the job is about to end"),
}
_GIVEN_UP = "its checkpoint was given up"
_NOT_OF_A_PROCESS = (EndedByFunction, ManifestWritten, ManifestFailed, CheckpointsRetired, StopRequested)

JOB_EVENTS: EventTable[JobMachine, JobState, Instructions] = EventTable(JobState)


def _on(
    kind: type[Event],
    handler: Callable[[JobMachine, Event], Instructions],
    taking_over: Callable[[JobMachine, Event], Instructions] = JobMachine._defer,
    others: Mapping[JobState, Callable[[JobMachine, Event], Instructions]] = MappingProxyType({}),
) -> None:
    JOB_EVENTS.on(kind, handler, {JobState.TAKING_OVER: taking_over, JobState.ENDED: _HAS_ENDED, **others})


_on(messages.Started, JobMachine._on_started, JobMachine._started_meanwhile)
_on(messages.StatusReport, _IS_A_SIGN_OF_LIFE, JobMachine._status_reported)
_on(ProcessDied, JobMachine._on_died, JobMachine._died_meanwhile)
_on(NoRoom, JobMachine._on_no_room)
_on(ProcessBusy, _IS_A_SIGN_OF_LIFE, _IS_A_SIGN_OF_LIFE)
_on(messages.Prepared, JobMachine._on_prepared)
_on(
    messages.NotPrepared,
    Unless(JobMachine._is_of_the_past, "it has been sent another checkpoint since", JobMachine._on_not_prepared),
)
_on(messages.HeldLogsReport, JobMachine._on_held_logs_report, others=_NO_ROUND)
_on(messages.Snapshotted, JobMachine._on_snapshotted)
_on(messages.SnapshotFailed, JobMachine._on_snapshot_failed)
_on(messages.LoadDelayed, JobMachine._on_load_delayed)
_on(messages.Running, JobMachine._on_running)
_on(messages.NewEffect, JobMachine._on_new_effect)
_on(messages.Drained, JobMachine._on_drained)
_on(messages.Probed, JobMachine._on_probed)
_on(messages.SourceReached, JobMachine._on_source_reached)
_on(messages.Satisfied, JobMachine._on_satisfied)
_on(messages.Committed, JobMachine._on_committed)
_on(messages.RequestCheckpoint, JobMachine._on_request_checkpoint)
_on(messages.FramesNotSpilled, JobMachine._on_spill_failed)
_on(messages.FunctionHangNoticed, JobMachine._on_function_hangs)
_on(EndedByFunction, JobMachine._on_ended_by_function)
_on(
    messages.Suspect,
    Unless(JobMachine._is_replaced, "one of the two has no process any more", JobMachine._on_suspect),
)
_on(messages.Failed, JobMachine._on_failed)
_on(messages.Pong, JobMachine._on_pong)
_on(
    ManifestWritten,
    Unless(JobMachine._is_given_up, _GIVEN_UP, JobMachine._on_manifest_written),
    others={JobState.ROLLING_BACK: Unless(JobMachine._is_given_up, _GIVEN_UP, JobMachine._on_awaited_manifest_written)},
)
_on(ManifestFailed, JobMachine._on_manifest_failed)
_on(CheckpointsRetired, JobMachine._on_checkpoints_retired)
_on(StopRequested, JobMachine._on_stop_requested, others=_ENDS_ANYWAY)
