"""Takeover: a new coordinator requests the status of all processes and reads storage (D9, D11).

    requested --all have answered, failed, or been silent for too long--> settled

The state of the lost coordinator is not needed. Storage determines which checkpoint is the last; every other checkpoint
that the lost coordinator triggered is void. The processes report which tasks they are. If two report the same task, the
newer attempt counts. A process also loses its task if only its peers have seen a newer attempt. A round that was under
way starts again: a task whose process was promoted but has no log yet counts as failed, and the process is promoted
again. Tasks continue meanwhile, since they need a coordinator only for checkpoints and failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos_py.job.checkpointing import JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, KillProcess, Send
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.restarts_without_log import add_newer
from clonos_py.job.rounds import Rounds
from clonos_py.model import messages
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import StatusReport
from clonos_py.model.segments import Incarnation
from clonos_py.model.times import MAX_TIME

_TIMEOUTS = 2
"""Heartbeat timeouts that may pass after the last answer. While other processes answer, a process is only slow."""


class Takeover:
    """The status requests and the decisions that follow from the answers."""

    def __init__(self, context: CoordinatorContext, protocol: JobCheckpointing) -> None:
        self._context, self._protocol = context, protocol
        self._awaited: set[int] = set()
        self._answers: dict[int, StatusReport] = {}
        self.until_us = MAX_TIME
        """A process that has not answered by then has failed."""

    def request(self, roster: Mapping[int, TaskId]) -> Instructions:
        """Requests the status of all processes. ``roster``: every process that may still run, by number."""
        context = self._context
        self._awaited = set(roster)
        self._extend_deadline()
        for number, task in sorted(roster.items()):
            context.fleet.adopt(number, task, context.now_us)
        return [Send(number, messages.StatusRequest()) for number in sorted(roster)]

    @property
    def complete(self) -> bool:
        return not self._awaited

    def answer(self, message: StatusReport) -> None:
        """Takes the answer of a process; only its first one counts."""
        if message.process in self._awaited:
            self._awaited.remove(message.process)
            self._answers[message.process] = message
            self._extend_deadline()

    def _extend_deadline(self) -> None:
        self.until_us = self._context.now_us + _TIMEOUTS * self._context.policy.heartbeat_timeout_us

    def process_died(self, number: int) -> None:
        """The process has ended."""
        self._context.fleet.remove(number)
        self._awaited.discard(number)
        self._answers.pop(number, None)

    def give_up(self) -> Instructions:
        """The time is over: ends the processes that have not answered, so that they are replaced."""
        return [self._kill(number) for number in sorted(self._awaited)]

    def settle(self, rounds: Rounds) -> Instructions:
        """Once all have answered: restores fleet, checkpoints and rounds, and sends every process the last
        checkpoint."""
        context = self._context
        self.until_us = MAX_TIME
        for process in context.fleet.processes.values():
            process.last_seen_us = context.now_us  # it has answered, and has not been sent a ping since
        self._protocol.resume(max((answer.checkpoint for answer in self._answers.values()), default=0))
        attempts, round_ = self._newest_attempts(), max((a.round for a in self._answers.values()), default=0)
        out: Instructions = []
        for number in sorted(self._answers):
            out += self._assign(context.fleet.processes[number], attempts)
        owners = {process.task: process for process in context.fleet.with_role(Role.ACTIVE)}
        out += self._settled_state(owners.values())
        replaying = {task for task, process in owners.items() if self._answers[process.number].replaying}
        failed = set(context.plan.tasks).difference(owners)
        return out + rounds.resume(round_, attempts, failed, self._incarnations(round_), replaying)

    def _settled_state(self, owners: Iterable[TaskProcess]) -> Instructions:
        """Sends processes the last completed checkpoint and the void ones."""
        context, out = self._context, Instructions()
        for process in owners:
            if context.completed.manifest is not None:
                out.append(self._protocol.send_complete(process))
            out += [Send(process.number, messages.AbortCheckpoint(epoch)) for epoch in self._protocol.void]
        for process in context.fleet.with_role(Role.STANDBY):
            if process.address is not None:
                out += self._protocol.prepare(process)
        return out

    @property
    def drained(self) -> set[int]:
        """The processes whose tasks have read all of their input."""
        return {number for number, answer in self._answers.items() if answer.drained}

    @property
    def committed(self) -> dict[int, int]:
        """By process: the newest epoch whose results it has committed. It may have told only the lost coordinator."""
        return {number: answer.committed for number, answer in self._answers.items()}

    def failures(self) -> list[messages.Failed]:
        """Failures that processes could not report, since there was no coordinator."""
        return [a.failure for _, a in sorted(self._answers.items()) if a.failure is not None]

    def _newest_attempts(self) -> dict[TaskId, Attempt]:
        """The newest attempt of every task for which any process reports one."""
        newest: dict[TaskId, Attempt] = {}
        for number, answer in self._answers.items():
            own = [(self._context.fleet.processes[number].task, answer.attempt)] if answer.attempt is not None else []
            for task, attempt in [*own, *answer.peers]:
                newest[task] = max(attempt, newest.get(task, attempt))
        return newest

    def _incarnations(self, round_: int) -> dict[TaskId, Incarnation]:
        """The incarnation of every task that has restarted without its log. For a task without a process only the
        number is reported."""
        found: dict[TaskId, Incarnation] = {}
        for number, answer in self._answers.items():
            process = self._context.fleet.get(number)
            if process is not None and process.role is Role.ACTIVE and answer.incarnation.number:
                found[process.task] = answer.incarnation
        numbers = [answer.incarnations for answer in self._answers.values()]
        add_newer(found, numbers, self._context.plan, self._protocol.epoch, round_)
        return found

    def _assign(self, process: TaskProcess, attempts: Mapping[TaskId, Attempt]) -> Instructions:
        """Gives a process its role. Ends it if its task has a newer attempt, or if it was to start from a checkpoint
        that is not the last."""
        answer = self._answers[process.number]
        if answer.attempt is None:
            process.prepared = answer.restore or -1
            return []
        stale = not answer.begun and answer.restore != self._protocol.epoch(process.task)
        if stale or answer.attempt < attempts[process.task]:
            return [self._kill(process.number)]
        process.attempt = answer.attempt
        process.role = Role.ACTIVE if answer.begun else Role.PROMOTED
        return []

    def _kill(self, number: int) -> KillProcess:
        self.process_died(number)
        return KillProcess(number)
