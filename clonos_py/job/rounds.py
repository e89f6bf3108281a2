"""The course of recovery rounds: failed tasks get processes, survivors answer, replacements replay (D9).

    [*] --> OVER
    OVER, GATHERING, ANSWERING --tasks failed, or are deployed--> GATHERING
    GATHERING --checkpoints settled, a process for every failed task--> ANSWERING
    ANSWERING --all survivors have answered--> OVER

Promote and Sever are sent when every failed task has a process, the logs to replay when all survivors have answered. A
deployment is a round, too: all tasks count as failed and there are no survivors.

Standbys may share a host process. When one of them is promoted, the others are replaced by standbys elsewhere. They
leave once their replacements have loaded as new a checkpoint; until then they may be needed. A standby that is needed
for its own task is promoted where it is, since starting a process elsewhere would take too long. Two tasks then share a
host process. One of them moves as soon as it has a standby elsewhere with the state of the last checkpoint: its process
is dismissed, and the standby takes over as after a failure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from clonos_py.job.checkpointing import JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, KillProcess, ReportEvent, Send
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.recovery import Round, newest_epoch_in, newest_epoch_named, peers, replay_of
from clonos_py.job.restarts_without_log import RestartsWithoutLog
from clonos_py.job.states import ROUND_STATES, RoundCause, RoundKind, RoundState
from clonos_py.model import messages
from clonos_py.model.coordinator_events import (
    Deployed,
    FirstNewEffect,
    Replayed,
    Restarted,
    StandbyActivated,
    StandbyLost,
    StandbyPromoted,
    TaskLost,
)
from clonos_py.model.errors import OrphanError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation
from clonos_py.model.states import LastEvents


def reports_logs(plan: PhysicalPlan, task: TaskId) -> bool:
    """Whether a process that starts with the state of ``task`` has logs of others: from the output of a causal sink,
    from its snapshot, or from the feed of its predecessor."""
    return plan.stores_logs or bool(plan.by_name[task.vertex].causal_sinks) or plan.feeds(task)


class Rounds:
    """Runs one round at a time. ``advance`` and ``answer`` raise ProtocolError when no replay can recover from the
    failure; then only a rollback can (``deploy`` in the next generation)."""

    def __init__(self, context: CoordinatorContext, protocol: JobCheckpointing, last: LastEvents) -> None:
        """``last``: the last events of the job."""
        self._context, self._protocol, self._last = context, protocol, last
        self.state = ROUND_STATES.initial
        self._round = Round(0, RoundKind.FIRST_DEPLOYMENT, set())
        self._counters: dict[TaskId, int] = {}
        self._ever_failed: set[TaskId] = set()
        """Tasks that have failed since this generation was deployed."""
        self._failed_before: set[TaskId] = set()
        """Tasks whose failure made the job roll back, until it is deployed again."""
        self._restarts_without_log = RestartsWithoutLog(context, protocol)
        self._replaying: set[TaskId] = set()
        """Tasks that were sent a log and have not reported that they have replayed it."""
        self._effective: dict[TaskId, bool] = {}
        """Tasks that restarted after a failure, and whether they have had a new effect since; cleared once all have."""

    def _enter(self, cause: RoundCause) -> None:
        self.state = ROUND_STATES.after(self.state, cause, "the round", self._last)

    @property
    def over(self) -> bool:
        """Whether every failed task has a replacement that was sent its log, or no task has failed."""
        return self.state is RoundState.OVER

    @property
    def deploying(self) -> bool:
        """Whether no task has run yet in this generation."""
        return not self.over and self._round.kind is not RoundKind.RECOVERY

    def deploy(self, reuse: Mapping[TaskId, int] | None = None) -> Instructions:
        """Starts processes and standbys of all tasks, with the first attempts of the generation. After a rollback tasks
        start in the host processes of their former processes (``reuse``: by task, the process's number), and standbys
        stay."""
        context = self._context
        kind = RoundKind.FIRST_DEPLOYMENT if reuse is None else RoundKind.DEPLOYMENT
        self._counters, self._ever_failed = dict.fromkeys(context.plan.tasks, 0), set()
        self._failed_before = set() if reuse is None else set(context.plan.tasks).difference(reuse)
        self._effective = {} if reuse is None else dict.fromkeys(context.plan.tasks, False)
        self._begin(Round(self._round.number + 1, kind, set(context.plan.tasks)))
        self._restarts_without_log.reset()
        self._replaying = set()
        out: Instructions = []
        for task in context.plan.tasks_by_demand:
            if reuse and task in reuse:
                out.append(context.start_process(task, reuse[task]))
            elif not context.fleet.standbys(task):
                out.append(context.start_process(task))
        for task in context.plan.tasks_by_demand:
            lacking = 1 + self._standbys_of(task) - len(context.fleet.standbys(task))
            out += [context.start_process(task) for _ in range(lacking)]
        return out

    def resume(
        self,
        number: int,
        attempts: Mapping[TaskId, Attempt],
        failed: Collection[TaskId],
        incarnations: Mapping[TaskId, Incarnation],
        replaying: Collection[TaskId],
    ) -> Instructions:
        """Continues after a lost coordinator whose last round was ``number``. ``attempts``: the newest known attempt of
        each task. ``failed``: the tasks without a process, and those whose process was promoted but has no log yet.
        ``incarnations``: of tasks that restarted without their log. ``replaying``: tasks that still replay their
        logs."""
        self._restarts_without_log.resume(incarnations)
        self._replaying = set(replaying)
        context, fleet = self._context, self._context.fleet
        replaced = any(attempt.counter > 1 for attempt in attempts.values())
        deploying = not fleet.with_role(Role.ACTIVE) and not replaced
        self._counters = {task: attempts[task].counter if task in attempts else 1 for task in context.plan.tasks}
        if not attempts:
            self._counters = dict.fromkeys(context.plan.tasks, 0)
        self._ever_failed = set() if deploying else set(failed)
        lost = [task for task in sorted(failed) if not deploying and fleet.owner(task) is None]
        out: Instructions = [ReportEvent(TaskLost(t, "it failed while there was no coordinator")) for t in lost]
        kind = RoundKind.FIRST_DEPLOYMENT if deploying else RoundKind.RECOVERY
        self._begin(Round(number + 1, kind, set(failed)))
        out += self.dismiss_co_located()
        out += [i for standby in fleet.with_role(Role.STANDBY) for i in self.follow(standby)]
        return out + self._refill_standbys(set(context.plan.tasks).difference(failed))

    def fail(self, process: TaskProcess, reason: str, planned: bool = False) -> Instructions:
        """The process of a task has failed, or has to leave (``planned``): begins a new round for it and for the tasks
        whose round had not ended."""
        task = process.task
        self._restart(self._round.failed | {task})
        if self.deploying:
            return []
        self._ever_failed.add(task)
        self._effective[task] = False
        return [ReportEvent(TaskLost(task, reason, process.attempt, planned))]

    def _restart(self, failed: set[TaskId]) -> None:
        last = self._round
        kind = RoundKind.RECOVERY if self.over else last.kind
        self._begin(Round(last.number + 1, kind, failed, without_log=last.without_log))

    def _begin(self, round_: Round) -> None:
        self._round = round_
        if round_.failed:
            self._enter(RoundCause.TASKS_FAILED)

    def advance(self) -> Instructions:
        """Starts the round once checkpoints are settled and every failed task has a process that has started."""
        context, round_ = self._context, self._round
        if self.state is not RoundState.GATHERING or self._protocol.pending:
            return []
        if self._protocol.all_go_back and not self.deploying:
            raise OrphanError(f"{', '.join(map(str, sorted(round_.failed)))} failed, and nothing is logged")
        out = [] if self.deploying else self._send_back_condemned()
        round_ = self._round
        out += self._protocol.fall_back(round_.failed)
        if self._protocol.pending:
            return out
        chosen = self._candidates(round_)
        out += [context.start_process(task) for task in sorted(round_.failed.difference(chosen))]
        if len(chosen) < len(round_.failed) or any(process.address is None for process in chosen.values()):
            return out
        if not self.deploying:
            out += self._restarts_without_log.begin(round_)
            if abandoned := self._abandon_replays(round_):
                return out + abandoned + self.advance()
        self._enter(RoundCause.PROCESSES_READY)
        promoted = [process for process in chosen.values() if process.role is Role.STANDBY]
        for process in promoted:
            self._counters[process.task] += 1
            process.role, process.attempt = Role.PROMOTED, Attempt(context.generation, self._counters[process.task])
        out += self._promote_and_sever(round_, promoted)
        return out + self._finish()

    def _abandon_replays(self, round_: Round) -> Instructions:
        """Fails the tasks that replay logs which are of no use any more. If there are any, a new round has begun."""
        context = self._context
        out: Instructions = []
        for task in self._restarts_without_log.useless_replays(round_, self._replaying):
            owner = context.fleet.owner_of(task)
            context.fleet.remove(owner.number)
            out.append(KillProcess(owner.number))
            out += self.fail(owner, "a task upstream restarts without its log, so that this task cannot replay its own")
        return out

    @property
    def missing(self) -> list[TaskId]:
        """The failed tasks for which no process has started yet."""
        up = {process.task for process in self._context.fleet.processes.values() if process.address is not None}
        return sorted(self._round.failed - up) if self.state is RoundState.GATHERING else []

    def _candidates(self, round_: Round) -> dict[TaskId, TaskProcess]:
        """By failed task: the process for it, one already promoted, else the best standby. Those without any are
        missing. Two in one host process are avoided, since they would compete for it."""
        chosen: dict[TaskId, TaskProcess] = {}
        fleet, first = self._context.fleet, round_.kind is RoundKind.FIRST_DEPLOYMENT
        host_processes = {p.host_process for p in fleet.with_role(Role.PROMOTED, Role.ACTIVE)}
        for task in sorted(round_.failed):
            if found := fleet.owner(task) or fleet.best(task, first, host_processes):
                chosen[task] = found
                host_processes.add(found.host_process)
        return chosen

    def _promote_and_sever(self, round_: Round, promoted: list[TaskProcess]) -> Instructions:
        """Sends Promote to the processes chosen for failed tasks, and Sever to all others. Processes promoted earlier
        that still wait for their log get Sever, too, since they also have received frames and hold logs. Newly promoted
        processes get it if they report logs of another origin: those in the output of a causal sink that they take
        over, or those in a snapshot."""
        context, owners, out = self._context, self._owners(), Instructions()
        reset = round_.without_log
        all_reset = set(context.plan.tasks) if not context.policy.replay and not self.deploying else reset
        attempts = [(task, owners[task][1]) for task in sorted(round_.failed)]
        for process in context.fleet.with_role(Role.PROMOTED, Role.ACTIVE):
            if process in promoted:
                assert process.attempt is not None
                restore = self._protocol.restart(process.task)
                inputs = peers(context.plan, process.task, owners, all_reset)
                names = context.completed.numbering, context.completed.run
                promote = messages.Promote(round_.number, process.attempt, restore, inputs, *names)
                out.append(Send(process.number, promote))
                inputs = []
            else:
                inputs = peers(context.plan, process.task, owners, reset, of=round_.failed)
            if process not in promoted or reports_logs(context.plan, process.task):
                round_.await_answer(process)
                completed = self._protocol.complete_message(process.task)
                out.append(Send(process.number, messages.Sever(round_.number, inputs, attempts, completed)))
        for process in promoted:
            assert process.attempt is not None
            out += self._reported(StandbyPromoted(process.task, process.attempt))
        return out

    def _owners(self) -> dict[TaskId, tuple[str, Attempt]]:
        found = {}
        for task in self._context.plan.tasks:
            owner = self._context.fleet.owner_of(task)
            assert owner.address is not None
            assert owner.attempt is not None
            found[task] = (owner.address, owner.attempt)
        return found

    def answer(self, message: messages.HeldLogsReport) -> Instructions:
        """Takes a survivor's report of what it holds; answers to earlier rounds are ignored."""
        return self._finish() if self._round.take_answer(message) else []

    def _finish(self) -> Instructions:
        """Once all survivors have answered: sends each replacement its log to replay."""
        context, round_, deploying = self._context, self._round, self.deploying
        if self.state is not RoundState.ANSWERING or round_.awaited:
            return []
        if deploying:
            self._protocol.skip_to(newest_epoch_named(context.plan, round_.answers, self._protocol.epoch))
        else:
            survivors = {context.fleet.processes[answer.process].task: answer for answer in round_.answers}
            if not context.plan.rollback and (more := self._restarts_without_log.find_orphans(round_, survivors)):
                self._restart(round_.failed)
                return more + self._abandon_replays(self._round) + self.advance()
            self._restarts_without_log.settle(round_)
        out = self._activate(round_) + self._refill_standbys(round_.failed)
        round_.failed, round_.without_log = set(), set()
        self._enter(RoundCause.ALL_ANSWERED)
        out += self.dismiss_co_located()
        if deploying:
            standbys = sum(vertex.parallelism * vertex.standbys for vertex in context.plan.vertices)
            out.append(ReportEvent(Deployed(len(context.plan.tasks), standbys)))
        self._failed_before = set()
        return out

    def _activate(self, round_: Round) -> Instructions:
        epoch, void, out = self._protocol.epoch, self._protocol.void, Instructions()
        replays = {task: replay_of(self._context.plan, task, round_, epoch, void) for task in sorted(round_.failed)}
        self._skip_epochs(round_, replays.values())
        for task, replay in replays.items():
            owner = self._context.fleet.owner_of(task)
            owner.role = Role.ACTIVE
            out.append(Send(owner.number, replay))
            (self._replaying.add if replay.log else self._replaying.discard)(task)
            assert owner.attempt is not None
            out += self._reported(StandbyActivated(task, owner.attempt))
            out += [i for standby in self._context.fleet.standbys(task) for i in self.follow(standby)]
        return out

    def _skip_epochs(self, round_: Round, replays: Collection[messages.Replay]) -> None:
        """Does not use the epochs again in which replacements start, or which they reach in their logs. Tasks that
        take snapshots alone number some of them themselves."""
        reached = max((answer.starts_in for answer in round_.answers), default=0)
        if not self._context.plan.protocol.coordinated:
            reached = max((reached, *(newest_epoch_in(replay.log) for replay in replays)))
        self._protocol.skip_to(reached)

    def follow(self, standby: TaskProcess) -> Instructions:
        """Has a standby subscribe to the feed of the process that is its task, if there are both."""
        owner = self._context.fleet.owner(standby.task)
        if not self._context.plan.feeds(standby.task) or standby.address is None:
            return []
        if owner is None or owner.role is not Role.ACTIVE or owner.address is None or owner.attempt is None:
            return []
        return [Send(standby.number, messages.Follow(owner.address, owner.attempt))]

    def _send_back_condemned(self) -> Instructions:
        """Restarts condemned tasks together with the failed ones, in the host processes in which they run (E9), and
        adds them to the round. Besides survivors these are processes that an earlier round has promoted. Of the tasks
        condemned by a task whose process is already promoted, only those with an active process restart: a lost
        coordinator may have restarted one of them and not the others. As a result, everything that depends on a failed
        task is in its restart point, so that there are no orphans."""
        context, fleet, out = self._context, self._context.fleet, Instructions()
        failed = self._round.failed
        condemned = self._protocol.condemned({task for task in failed if fleet.owner(task) is None})
        running = {process.task for process in fleet.with_role(Role.ACTIVE)}
        named = ", ".join(map(str, sorted(failed)))
        for task in sorted(condemned | (self._protocol.condemned(failed) & running)):
            if (owner := fleet.owner(task)) is not None:
                fleet.remove(owner.number)
                out += self.fail(owner, f"its state does not fit the restart point of {named}")
                out.append(context.start_process(task, owner.number))
        return out

    def dismiss_co_located(self) -> Instructions:
        """Dismisses standbys that share a host process with a task, once others elsewhere have as new a checkpoint."""
        context, out = self._context, Instructions()
        for standby in context.fleet.co_located_standbys() if self.over else []:
            out += self._refill_standbys([standby.task])
            others = [
                p for p in context.fleet.separate_standbys(standby.task) if p.address and p.prepared >= standby.prepared
            ]
            if len(others) >= self._standbys_of(standby.task):
                out.append(context.dismiss(standby))
                out.append(ReportEvent(StandbyLost(standby.task, "its process has become another task's")))
        return out

    def process_to_leave(self) -> TaskProcess | None:
        """A process whose task another task disturbs, and fails with, as they share a host process; its standby
        elsewhere can take over at once. None if there is none, or where a replacement repeats rows, loses some or makes
        others go back, so that the move would cost more than it gains."""
        context = self._context
        if not self.over or self._replaying or context.plan.rollback or not context.policy.deduplicate:
            return None
        for process in context.fleet.tasks_that_share():
            epoch = self._protocol.epoch(process.task)
            if any(p.address and p.prepared == epoch for p in context.fleet.separate_standbys(process.task)):
                return process
        return None

    def replace_standby(self, task: TaskId) -> Instructions:
        """A standby has failed: starts another if one is lacking."""
        lacks = self._lacking(task) > 0 or self._context.fleet.owner(task) is None
        return [self._context.start_process(task)] if lacks else []

    def _standbys_of(self, task: TaskId) -> int:
        return self._context.plan.by_name[task.vertex].standbys

    def _lacking(self, task: TaskId) -> int:
        return self._standbys_of(task) - len(self._context.fleet.separate_standbys(task))

    def _refill_standbys(self, tasks: Collection[TaskId]) -> Instructions:
        return [self._context.start_process(task) for task in sorted(tasks) for _ in range(self._lacking(task))]

    # ---- the progress of replacements

    def replayed(self, task: TaskId, rows: int) -> Instructions:
        self._replaying.discard(task)
        return self._reported(Replayed(task, rows))

    def new_effect(self, task: TaskId) -> Instructions:
        """The replacement has had an effect that its predecessor had not. It may still be receiving frames that the
        predecessor had received."""
        out = self._reported(FirstNewEffect(task))
        if task in self._effective:
            self._effective[task] = True
            if all(self._effective.values()):
                out.append(ReportEvent(Restarted(len(self._effective))))
                self._effective = {}
        return out

    def _reported(self, event: StandbyPromoted | StandbyActivated | Replayed | FirstNewEffect) -> Instructions:
        """Reports events of failed tasks only. For others after a rollback it is not known which effects are new."""
        return [ReportEvent(event)] if event.task in self._ever_failed | self._failed_before else []
