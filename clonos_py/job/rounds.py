"""The course of recovery rounds: failed tasks get processes, survivors answer, replacements replay (D9).

    new round --checkpoints settled, a process for every failed task--> Promote and Sever sent
              --all survivors have answered--> Replay sent, the round has ended;  any --another death--> new round

The first deployment is a round, too: all tasks are "failed" and nobody survives.

Standbys may share a home. When one of them becomes its task, the others are replaced elsewhere, and leave when those
replacements are as far as they are: until then, they may be needed. Those that are needed stay where they are, since
to wait for a process elsewhere would take too long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from clonos_py.job.desk import Desk
from clonos_py.job.events import Happening
from clonos_py.job.fleet import Process, Role
from clonos_py.job.losses import Losses
from clonos_py.job.recovery import Round, latest_named, peers, replay_of, restore_point
from clonos_py.model import messages
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import Life


class Rounds:
    """One round at a time. ``advance`` and ``answer`` say whether the round has just ended; they raise ProtocolError
    when no replay can heal the failure, which leaves a rollback (``deploy`` with the next generation)."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._round = Round(0, set())
        self.deploying = True
        """Whether nobody has run yet in this generation."""
        self._counters: dict[TaskId, int] = {}
        self._failed_us: dict[TaskId, int] = {}
        self._losses = Losses(desk)
        self._replaying: set[TaskId] = set()
        """Tasks that have been given a log, and have not said that it is used up."""

    def deploy(self) -> None:
        """Starts processes and standbys of all tasks, which are the first attempts of the desk's generation."""
        desk = self._desk
        self.deploying = True
        self._counters, self._failed_us = dict.fromkeys(desk.plan.tasks, 0), {}
        self._round = Round(self._round.number + 1, set(desk.plan.tasks))
        self._losses.forget()
        self._replaying = set()
        for task in desk.plan.tasks:
            desk.start_process(task)
        for task in desk.plan.tasks:
            for _ in range(self._wanted(task)):
                desk.start_process(task)

    def resume(
        self,
        number: int,
        attempts: Mapping[TaskId, Attempt],
        failed: Collection[TaskId],
        lives: Mapping[TaskId, Life],
        replaying: Collection[TaskId],
    ) -> None:
        """Goes on for a coordinator that was lost, after its round ``number``. ``attempts`` are the newest known of;
        ``failed`` has the tasks that no process is, and those that a process has merely been told to be; ``lives`` of
        those that have started anew; ``replaying`` those whose logs are not used up."""
        self._losses.resume(lives)
        self._replaying = set(replaying)
        desk, fleet = self._desk, self._desk.fleet
        self.deploying = not fleet.with_role(Role.ACTIVE)
        self._counters = {task: attempts[task].counter if task in attempts else 1 for task in desk.plan.tasks}
        if not attempts:
            self._counters = dict.fromkeys(desk.plan.tasks, 0)
        self._failed_us = {} if self.deploying else dict.fromkeys(failed, desk.clock_us)
        for task in sorted(failed):
            if not self.deploying and fleet.owner(task) is None:
                desk.report(Happening.TASK_FAILED, task, reason="it died while there was no coordinator")
        self._round = Round(number + 1, set(failed))
        self.make_room()
        self._refill_standbys(set(desk.plan.tasks).difference(failed))

    def fail(self, process: Process, reason: str) -> None:
        """The process of a task is gone: a new round for it and for those whose round had not ended."""
        task = process.task
        if not self.deploying:
            self._failed_us[task] = self._desk.clock_us
            self._desk.report(Happening.TASK_FAILED, task, reason=reason, attempt=str(process.attempt))
        self._restart(self._round.failed | {task})

    def _restart(self, failed: set[TaskId]) -> None:
        self._round = Round(self._round.number + 1, failed, anew=self._round.anew)

    def advance(self) -> bool:
        """Starts the round once checkpoints are settled and every failed task has a process to be it."""
        desk, round_ = self._desk, self._round
        if not round_.failed or round_.started or desk.checkpoints.pending is not None:
            return False
        chosen = self._candidates(round_)
        if any(process is None or process.address is None for process in chosen.values()):
            return False
        if not self.deploying:
            self._losses.begin(round_)
            if self._abandon_replays(round_):
                return self.advance()
        round_.started = True
        promoted = [p for p in chosen.values() if p is not None and p.role is Role.STANDBY]
        for process in promoted:
            self._counters[process.task] += 1
            process.role, process.attempt = Role.PROMOTED, Attempt(desk.generation, self._counters[process.task])
        self._tell_everybody(round_, promoted)
        return self._finish()

    def _abandon_replays(self, round_: Round) -> bool:
        """A task that still replays its log waits for frames that a task which starts anew will not send again: it has
        failed, too. Whether there is one, for which a new round has begun."""
        desk = self._desk
        reached = {task for origin in round_.anew for task in desk.plan.hops[origin]}
        abandoned = (self._replaying & reached) - round_.failed
        for task in sorted(abandoned):
            owner = desk.fleet.owner(task)
            assert owner is not None
            desk.fleet.remove(owner.number)
            desk.kill_process(owner.number)
            self.fail(owner, "a task before it starts anew, and its log cannot be replayed any more")
        return bool(abandoned)

    @property
    def over(self) -> bool:
        """Whether no task has failed, or its replacement has its log."""
        return not self._round.failed

    @property
    def missing(self) -> list[TaskId]:
        """The failed tasks that no process can be, since none has come up."""
        up = {process.task for process in self._desk.fleet.processes.values() if process.address is not None}
        return [] if self._round.started else sorted(self._round.failed - up)

    def _candidates(self, round_: Round) -> dict[TaskId, Process | None]:
        """By failed task. Two in one home are avoided: they would compete."""
        chosen: dict[TaskId, Process | None] = {}
        homes = {p.home for p in self._desk.fleet.with_role(Role.PROMOTED, Role.ACTIVE)}
        for task in sorted(round_.failed):
            process = chosen[task] = self._candidate(task, homes)
            if process is not None:
                homes.add(process.home)
        return chosen

    def _candidate(self, task: TaskId, homes: Collection[int]) -> Process | None:
        """The process to be a failed task: the one promoted already, else the best standby, else a new one."""
        fleet = self._desk.fleet
        found = fleet.owner(task) or fleet.best(task, self.deploying, homes)
        if found is None:
            self._desk.start_process(task)
        return found

    def _tell_everybody(self, round_: Round, promoted: list[Process]) -> None:
        """Promote to the new ones, Sever to all others, those still waiting for their log included: they, too, have
        received and hold something. So does the output of a causal sink, for which whoever takes it over answers."""
        desk, owners = self._desk, self._owners()
        reset = round_.anew
        all_reset = set(desk.plan.tasks) if not desk.policy.replay and not self.deploying else reset
        attempts = [(task, owners[task][1]) for task in sorted(round_.failed)]
        for process in desk.fleet.with_role(Role.PROMOTED, Role.ACTIVE):
            if process in promoted:
                assert process.attempt is not None
                restore = restore_point(desk.checkpoints.manifest, process.task, desk.plan)
                inputs = peers(desk.plan, process.task, owners, all_reset)
                numbering = desk.checkpoints.numbering
                desk.send(process, messages.Promote(round_.number, process.attempt, restore, inputs, numbering))
                inputs = []
            else:
                inputs = peers(desk.plan, process.task, owners, reset, of=round_.failed)
            if process not in promoted or desk.plan.by_name[process.task.vertex].causal_sinks:
                round_.awaited.add(process.number)
                desk.send(process, messages.Sever(round_.number, inputs, attempts, desk.checkpoints.completed))
        for process in promoted:
            self._report(Happening.STANDBY_PROMOTED, process.task, attempt=str(process.attempt))

    def _owners(self) -> dict[TaskId, tuple[str, Attempt]]:
        found = {}
        for task in self._desk.plan.tasks:
            owner = self._desk.fleet.owner(task)
            assert owner is not None
            assert owner.address is not None
            assert owner.attempt is not None
            found[task] = (owner.address, owner.attempt)
        return found

    def answer(self, message: messages.Holdings) -> bool:
        """A survivor says what it holds; answers to older rounds are too late to count."""
        round_ = self._round
        if message.round != round_.number or message.process not in round_.awaited:
            return False
        round_.awaited.discard(message.process)
        round_.answers.append(message)
        return self._finish()

    def _finish(self) -> bool:
        """Once all survivors have answered: the replacements replay."""
        desk, round_ = self._desk, self._round
        if not round_.started or round_.awaited:
            return False
        if self.deploying:
            desk.checkpoints.heard_of(latest_named(round_.answers))
        else:
            if self._losses.judge(round_):
                self._restart(round_.failed)
                self._abandon_replays(self._round)
                return self.advance()
            self._losses.settle(round_)
        for task in sorted(round_.failed):
            owner = desk.fleet.owner(task)
            assert owner is not None
            completed, aborted = desk.checkpoints.completed, desk.checkpoints.aborted
            replay = replay_of(desk.plan, task, round_, completed, aborted)
            owner.role = Role.ACTIVE
            desk.send(owner, replay)
            (self._replaying.add if replay.log else self._replaying.discard)(task)
            self._report(Happening.REPLAY_STARTED, task, attempt=str(owner.attempt))
        self._refill_standbys(round_.failed)
        round_.failed, round_.anew = set(), set()
        self.make_room()
        if self.deploying:
            desk.report(Happening.DEPLOYED, tasks=len(desk.plan.tasks), generation=desk.generation)
        self.deploying = False
        return True

    def make_room(self) -> None:
        """Standbys leave the homes of tasks, once others elsewhere are as good."""
        desk = self._desk
        for guest in desk.fleet.guests() if self.over else []:
            for _ in range(self._lacking(guest.task)):
                desk.start_process(guest.task)
            others = [p for p in desk.fleet.resident(guest.task) if p.address and p.prepared >= guest.prepared]
            if len(others) >= self._wanted(guest.task):
                desk.dismiss(guest)
                desk.report(Happening.STANDBY_LOST, guest.task, reason="its process has become another task's")

    def replace_standby(self, task: TaskId) -> None:
        """One has died."""
        if self._lacking(task) > 0 or self._desk.fleet.owner(task) is None:
            self._desk.start_process(task)

    def _wanted(self, task: TaskId) -> int:
        return self._desk.plan.by_name[task.vertex].standbys

    def _lacking(self, task: TaskId) -> int:
        return self._wanted(task) - len(self._desk.fleet.resident(task))

    def _refill_standbys(self, tasks: set[TaskId]) -> None:
        desk = self._desk
        for task in sorted(tasks):
            for _ in range(self._lacking(task)):
                desk.start_process(task)

    # ---- how far a failed task's replacement is

    def replayed(self, task: TaskId, rows: int) -> None:
        self._replaying.discard(task)
        self._report(Happening.REPLAYED, task, rows=rows)

    def new_effect(self, task: TaskId) -> None:
        """The replacement does what its predecessor had not done. It may still be taking what that had been sent."""
        self._report(Happening.NEW_EFFECT, task)

    def _report(self, what: Happening, task: TaskId, **detail: object) -> None:
        """Of tasks that have failed only; with the time since."""
        if task in self._failed_us:
            after_ms = (self._desk.clock_us - self._failed_us[task]) / 1_000
            self._desk.report(what, task, **detail, after_ms=after_ms)
