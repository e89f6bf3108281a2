"""The coordinator: the state machine that deploys a job, completes its checkpoints and heals its failures (D7-D11).

    STARTING --all processes up--> RUNNING <--> RECOVERING (one or more rounds)
    RUNNING --all tasks drained, final checkpoint committed--> ENDED
    any --orphans, divergence--> STARTING of the next generation (global rollback);  any --error--> ENDED

Invariants:
- at most one checkpoint is pending, and none while a round is under way;
- a replacement restarts from the last completed checkpoint, and replays only after every survivor of the round has
  closed its connections from the failed tasks and said what it holds;
- messages of processes that are not in the fleet are ignored: they are fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from clonos_py.job.checkpoints import Checkpoints
from clonos_py.job.events import (
    EndJob,
    Happening,
    JobEvent,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestFailed,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    Report,
    Send,
    StartProcess,
    WriteManifest,
)
from clonos_py.job.fleet import Fleet, Process, Role
from clonos_py.job.recovery import Round, check_orphans, peers, replay_of, restore_point
from clonos_py.model import errors, messages
from clonos_py.model.errors import ProtocolError, Remedy
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import ToCoordinator, ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.model.times import MAX_TIME


class JobState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    ENDED = "ended"


class JobMachine:
    """One job's coordinator."""

    def __init__(
        self,
        plan: PhysicalPlan,
        policy: JobPolicy,
        manifest: Manifest | None = None,
        generation: int = 1,
        code_digest: str = "",
    ) -> None:
        self.state = JobState.STARTING
        self.generation = generation
        self.rollbacks = 0
        self._plan, self._policy = plan, policy
        self._fleet = Fleet()
        self.checkpoints = Checkpoints(plan, manifest, code_digest)
        self._writing: Manifest | None = None
        self._counters = dict.fromkeys(plan.tasks, 0)
        self._round = Round(0, set())
        self._drained: set[TaskId] = set()
        self._committed: set[TaskId] = set()
        self._final: int | None = None
        self._rollbacks_in_vain = 0
        self._rollback_reason: str | None = None
        self._next_ping_us = MAX_TIME
        self._ping = 0
        self._failed_us: dict[TaskId, int] = {}
        self._sinks = {
            TaskId(v.name, i) for v in plan.vertices if any(o.sink for o in v.operators) for i in range(v.parallelism)
        }
        self._now_us = 0
        self._out: list[JobInstruction] = []

    # ---- entry points

    def start(self, now_us: int) -> list[JobInstruction]:
        """Begins the deployment."""
        self._now_us = now_us
        self._start_processes()
        return self._take()

    def handle(self, event: ToCoordinator | JobEvent, now_us: int) -> list[JobInstruction]:
        """One message or event in, instructions out."""
        self._now_us = now_us
        if self.state is not JobState.ENDED:
            process = getattr(event, "process", None)
            known = self._fleet.get(process) if process is not None else None
            if known is not None:
                known.heard_us = now_us
            if known is not None or process is None:
                self._HANDLERS[type(event)](self, event)
        return self._take()

    def tick(self, now_us: int) -> list[JobInstruction]:
        """Time has passed: heartbeats, checkpoint intervals and timeouts."""
        self._now_us = now_us
        if self.state is not JobState.ENDED:
            self._beat()
            self._time_checkpoints()
        return self._take()

    @property
    def wake_us(self) -> int:
        """When ``tick`` is due next."""
        times = [self._next_ping_us]
        if self.checkpoints.pending:
            times.append(self.checkpoints.pending.triggered_us + self._policy.checkpoint_timeout_us)
        elif self.checkpoints.next_us is not None:
            times.append(self.checkpoints.next_us)
        return min(times)

    def _take(self) -> list[JobInstruction]:
        instructions, self._out = self._out, []
        return instructions

    def _send(self, process: Process, message: ToProcess) -> None:
        self._out.append(Send(process.number, message))

    def _report(self, what: Happening, task: TaskId | None = None, **detail: Any) -> None:
        self._out.append(Report(what, task, detail))

    def _end(self, error: str | None = None, message: str = "") -> None:
        self.state = JobState.ENDED
        for process in self._fleet.processes.values():
            self._send(process, messages.Stop(message or "the job has finished"))
        if error is None:
            self._report(Happening.FINISHED)
        self._out.append(EndJob(error, message))

    # ---- deployment

    def _start_processes(self) -> None:
        self.state = JobState.STARTING
        self._next_ping_us = self._now_us + self._policy.heartbeat_us
        self._round = Round(self._round.number + 1, set(self._plan.tasks))
        for task in self._plan.tasks:
            self._start_process(task)
        for vertex in self._plan.vertices:
            for index in range(vertex.parallelism):
                for _ in range(vertex.standbys):
                    self._start_process(TaskId(vertex.name, index))

    def _start_process(self, task: TaskId) -> None:
        process = self._fleet.add(task, self._now_us)
        self._out.append(StartProcess(process.number, task))

    def _on_started(self, message: messages.Started) -> None:
        process = self._fleet.processes[message.process]
        process.address = message.address
        self._advance_round()
        if process.role is Role.STANDBY and self.checkpoints.manifest is not None:
            self._prepare(process)

    def _prepare(self, process: Process) -> None:
        self._send(process, messages.Prepare(restore_point(self.checkpoints.manifest, process.task, self._plan)))

    def _on_prepared(self, message: messages.Prepared) -> None:
        self._fleet.processes[message.process].prepared = message.checkpoint

    # ---- rounds: the same for the first deployment, where all tasks are "failed" and nobody survives

    def _on_died(self, event: ProcessDied) -> None:
        process = self._fleet.remove(event.process)
        if process is None:
            return
        if process.role is Role.STANDBY:
            self._report(Happening.STANDBY_LOST, process.task, reason=event.reason)
            self._start_process(process.task)
            return
        task = process.task
        self._drained.discard(task)
        self._committed.discard(task)
        if self.state is not JobState.STARTING:
            self._failed_us[task] = self._now_us
            self._report(Happening.TASK_FAILED, task, reason=event.reason, attempt=str(process.attempt))
        self._new_round({task})

    def _new_round(self, failed: set[TaskId]) -> None:
        unresolved = self._round.failed | failed
        self._round = Round(self._round.number + 1, unresolved)
        if self.state is JobState.RUNNING:
            self.state = JobState.RECOVERING
        if not (self.checkpoints.pending and self.checkpoints.pending.writing):
            self._abort("a task failed")
        self._advance_round()

    def _advance_round(self) -> None:
        """Starts the round once checkpoints are settled and every failed task has a process to be it."""
        round_ = self._round
        if not round_.failed or round_.started or self.checkpoints.pending is not None:
            return
        chosen = {task: self._candidate(task) for task in sorted(round_.failed)}
        if any(process is None or process.address is None for process in chosen.values()):
            return
        try:
            if self._policy.deduplicate:
                check_orphans(self._plan, round_.failed if self.state is JobState.RECOVERING else set())
        except ProtocolError as problem:
            self._roll_back(str(problem))
            return
        round_.started = True
        promoted = [p for p in chosen.values() if p is not None and p.role is Role.STANDBY]
        for process in promoted:
            self._counters[process.task] += 1
            process.role, process.attempt = Role.PROMOTED, Attempt(self.generation, self._counters[process.task])
        self._tell_everybody(round_, promoted)
        self._finish_round()

    def _candidate(self, task: TaskId) -> Process | None:
        """The process to be a failed task: the one promoted already, else the best standby, else a new one."""
        owner = self._fleet.owner(task)
        if owner is not None:
            return owner
        standbys = self._fleet.standbys(task)
        if not standbys:
            self._start_process(task)
            return None
        return standbys[0]

    def _tell_everybody(self, round_: Round, promoted: list[Process]) -> None:
        """Promote to the new ones, Sever to all others, those still waiting for their log included: they, too, have
        received and hold something."""
        owners = self._owners()
        fresh = self.state is JobState.STARTING
        reset = set() if self._policy.deduplicate or fresh else round_.failed
        all_reset = set(self._plan.tasks) if not self._policy.replay and not fresh else reset
        attempts = [(task, owners[task][1]) for task in sorted(round_.failed)]
        for process in self._fleet.with_role(Role.PROMOTED, Role.ACTIVE):
            if process in promoted:
                assert process.attempt is not None
                restore = restore_point(self.checkpoints.manifest, process.task, self._plan)
                inputs = peers(self._plan, process.task, owners, all_reset)
                self._send(process, messages.Promote(round_.number, process.attempt, restore, inputs))
            else:
                round_.awaited.add(process.number)
                inputs = peers(self._plan, process.task, owners, reset, of=round_.failed)
                self._send(process, messages.Sever(round_.number, inputs, attempts, self.checkpoints.completed))
        for process in promoted:
            if process.task in self._failed_us:
                self._report(
                    Happening.STANDBY_PROMOTED, process.task, attempt=str(process.attempt), **self._since(process.task)
                )

    def _owners(self) -> dict[TaskId, tuple[str, Attempt]]:
        found = {}
        for task in self._plan.tasks:
            owner = self._fleet.owner(task)
            assert owner is not None
            assert owner.address is not None
            assert owner.attempt is not None
            found[task] = (owner.address, owner.attempt)
        return found

    def _since(self, task: TaskId) -> dict[str, float]:
        return {"after_ms": (self._now_us - self._failed_us[task]) / 1_000} if task in self._failed_us else {}

    def _on_holdings(self, message: messages.Holdings) -> None:
        if message.round == self._round.number and message.process in self._round.awaited:
            self._round.awaited.discard(message.process)
            self._round.answers.append(message)
            self._finish_round()

    def _finish_round(self) -> None:
        """Once all survivors have answered: the replacements replay."""
        round_ = self._round
        if not round_.started or round_.awaited:
            return
        for task in sorted(round_.failed):
            owner = self._fleet.owner(task)
            assert owner is not None
            try:
                replay = replay_of(
                    self._plan,
                    task,
                    round_,
                    self.checkpoints.completed,
                    self.checkpoints.aborted,
                    self._policy.deduplicate,
                )
            except ProtocolError as problem:
                self._roll_back(str(problem))
                return
            owner.role = Role.ACTIVE
            self._send(owner, replay)
            if task in self._failed_us:
                self._report(Happening.REPLAY_STARTED, task, **self._since(task))
        self._refill_standbys(round_.failed)
        round_.failed = set()
        if self.state is JobState.STARTING:
            self._report(Happening.DEPLOYED, tasks=len(self._plan.tasks), generation=self.generation)
        self.state = JobState.RUNNING
        self._schedule_checkpoint()
        self._maybe_final()

    def _refill_standbys(self, tasks: set[TaskId]) -> None:
        for task in sorted(tasks):
            for _ in range(self._plan.by_name[task.vertex].standbys - len(self._fleet.standbys(task))):
                self._start_process(task)

    def _on_running(self, message: messages.Running) -> None:
        task = self._fleet.processes[message.process].task
        if task in self._failed_us:
            self._report(Happening.REPLAYED, task, rows=message.rows_replayed, **self._since(task))

    def _on_new_effect(self, message: messages.NewEffect) -> None:
        task = self._fleet.processes[message.process].task
        if task in self._failed_us:
            self._report(Happening.NEW_EFFECT, task, **self._since(task))
            del self._failed_us[task]

    def _roll_back(self, reason: str) -> None:
        """The explicit last resort (D10): everything restarts from the last completed checkpoint."""
        if self.checkpoints.pending and self.checkpoints.pending.writing:
            self._rollback_reason = reason  # which checkpoint is the last is being decided right now
            return
        self.rollbacks += 1
        self._rollbacks_in_vain += 1
        self._report(Happening.ROLLED_BACK, reason=reason, checkpoint=self.checkpoints.completed)
        if self._rollbacks_in_vain > self._policy.rollbacks_max:
            self._end("ProtocolError", f"given up after {self._policy.rollbacks_max} rollbacks in vain: {reason}")
            return
        self._abort("a rollback")
        for number in list(self._fleet.processes):
            self._fleet.remove(number)
            self._out.append(KillProcess(number))
        self._drained, self._committed, self._final, self._failed_us = set(), set(), None, {}
        self.generation += 1
        self._out.append(OpenGeneration(self.generation))
        self._counters = dict.fromkeys(self._plan.tasks, 0)
        self._start_processes()

    # ---- checkpoints

    def _schedule_checkpoint(self) -> None:
        if self._policy.checkpoint_interval_us and self.checkpoints.next_us is None:
            self.checkpoints.next_us = self._now_us + self._policy.checkpoint_interval_us

    def _time_checkpoints(self) -> None:
        pending = self.checkpoints.pending
        if pending is not None and not pending.writing:
            if self._now_us >= pending.triggered_us + self._policy.checkpoint_timeout_us:
                self._abort("timeout")
                self._advance_round()
                self._maybe_final()
        due = self.checkpoints.next_us
        if due is not None and due <= self._now_us:
            self.checkpoints.next_us = self._now_us + self._policy.checkpoint_interval_us
            self._trigger(final=False)

    def _trigger(self, final: bool) -> None:
        if self.state is not JobState.RUNNING or self.checkpoints.pending is not None or self._final is not None:
            return
        checkpoint = self.checkpoints.trigger(self._now_us, final)
        self._report(Happening.CHECKPOINT_TRIGGERED, checkpoint=checkpoint)
        for process in self._fleet.with_role(Role.ACTIVE):
            if self._plan.by_name[process.task.vertex].source is not None:
                self._send(process, messages.Trigger(checkpoint))

    def _abort(self, reason: str) -> None:
        checkpoint = self.checkpoints.abort()
        if checkpoint is not None:
            self._report(Happening.CHECKPOINT_ABORTED, checkpoint=checkpoint, reason=reason)
            for process in self._fleet.with_role(Role.ACTIVE):
                self._send(process, messages.AbortCheckpoint(checkpoint))

    def _on_snapshotted(self, message: messages.Snapshotted) -> None:
        process = self._fleet.processes[message.process]
        if process.role is not Role.ACTIVE:
            return
        manifest = self.checkpoints.acknowledge(message.handle, self.generation)
        if manifest is not None:
            self._writing = manifest
            self._out.append(WriteManifest(manifest))

    def _on_snapshot_failed(self, message: messages.SnapshotFailed) -> None:
        self._abort(message.reason)
        self._end("CheckpointError", message.reason)

    def _on_manifest_written(self, event: ManifestWritten) -> None:
        manifest, self._writing = self._writing, None
        if manifest is None or manifest.checkpoint != event.checkpoint or self.checkpoints.pending is None:
            return
        pending = self.checkpoints.complete(manifest)
        self._rollbacks_in_vain = 0
        written = sum(handle.written_bytes for handle in manifest.tasks)
        duration_ms = (self._now_us - pending.triggered_us) / 1_000
        self._report(
            Happening.CHECKPOINT_COMPLETED, checkpoint=event.checkpoint, duration_ms=duration_ms, written_bytes=written
        )
        if pending.final:
            self._final = event.checkpoint
        for process in self._fleet.with_role(Role.ACTIVE):
            self._send(process, messages.Complete(event.checkpoint))
        for process in self._fleet.with_role(Role.STANDBY):
            if process.address is not None:
                self._prepare(process)
        if self._rollback_reason is not None:
            reason, self._rollback_reason = self._rollback_reason, None
            self._roll_back(reason)
            return
        self._advance_round()
        self._maybe_final()
        self._maybe_finished()

    def _on_manifest_failed(self, event: ManifestFailed) -> None:
        self._abort(event.reason)
        self._end("CheckpointError", event.reason)

    def _on_request_checkpoint(self, message: messages.RequestCheckpoint) -> None:
        self._trigger(final=False)

    # ---- the end

    def _on_drained(self, message: messages.Drained) -> None:
        self._drained.add(self._fleet.processes[message.process].task)
        self._maybe_final()

    def _maybe_final(self) -> None:
        if len(self._drained) == len(self._plan.tasks) and self._final is None:
            self._trigger(final=True)

    def _on_committed(self, message: messages.Committed) -> None:
        if message.checkpoint == self._final:
            self._committed.add(self._fleet.processes[message.process].task)
            self._maybe_finished()

    def _maybe_finished(self) -> None:
        if self._final is not None and self._committed >= self._sinks:
            self._end()

    # ---- failures that processes report, heartbeats

    def _on_failed(self, message: messages.Failed) -> None:
        kind = getattr(errors, message.error, errors.ClonosError)
        if kind.remedy is Remedy.ROLL_BACK:
            self._roll_back(message.message)
        elif kind.remedy in (Remedy.RETRY, Remedy.RECOVER_TASK):
            self._out.append(KillProcess(message.process))
            self._on_died(ProcessDied(message.process, message.message))
        else:
            self._end(message.error, message.message)

    def _on_suspect(self, message: messages.Suspect) -> None:
        owner = self._fleet.owner(message.task)
        if owner is not None:
            self._send(owner, messages.Ping(self._ping))

    def _on_pong(self, message: messages.Pong) -> None:
        """Being heard is all that counts."""

    def _beat(self) -> None:
        if self._now_us < self._next_ping_us:
            return
        self._next_ping_us = self._now_us + self._policy.heartbeat_us
        self._ping += 1
        for process in list(self._fleet.processes.values()):
            if process.address is None:
                continue
            if self._now_us - process.heard_us > self._policy.heartbeat_timeout_us:
                self._out.append(KillProcess(process.number))
                self._on_died(ProcessDied(process.number, "silent for the heartbeat timeout"))
            else:
                self._send(process, messages.Ping(self._ping))

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        messages.Started: _on_started,
        messages.Prepared: _on_prepared,
        messages.Holdings: _on_holdings,
        messages.Snapshotted: _on_snapshotted,
        messages.SnapshotFailed: _on_snapshot_failed,
        messages.Running: _on_running,
        messages.NewEffect: _on_new_effect,
        messages.Drained: _on_drained,
        messages.Committed: _on_committed,
        messages.RequestCheckpoint: _on_request_checkpoint,
        messages.Suspect: _on_suspect,
        messages.Failed: _on_failed,
        messages.Pong: _on_pong,
        ProcessDied: _on_died,
        ManifestWritten: _on_manifest_written,
        ManifestFailed: _on_manifest_failed,
    }
