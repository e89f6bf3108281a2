"""Lost determinants: recovery of tasks that cannot repeat what their predecessors did (Clonos, section 5.4; D10).

There are two policies. Consistency: the whole job rolls back to its last checkpoint. Availability: the task restarts
from that checkpoint without its log, and its receivers take all frames that it sends, some of them for the second time.
No log can rebuild the state of such a receiver. If it fails before the next checkpoint is complete, it restarts without
its log, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from clonos_py.job.checkpointing import JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, ReportEvent
from clonos_py.job.orphans import Survivors, explanation, orphans
from clonos_py.job.recovery import Round
from clonos_py.model.coordinator_events import RestartedWithoutLog
from clonos_py.model.errors import OrphanError
from clonos_py.model.ids import LogId, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation


def add_newer(
    found: dict[TaskId, Incarnation],
    reported: Iterable[Mapping[LogId, int]],
    plan: PhysicalPlan,
    epoch: Callable[[TaskId], int],
    round_: int,
) -> None:
    """Adds to ``found`` the incarnations that are newer than those there. Only their numbers are ``reported``, by log.
    They may have just begun, so they get the current restart points (``epoch``) and ``round_``."""
    for numbers in reported:
        for log, number in numbers.items():
            task = plan.logs[log]
            if number > found.get(task, Incarnation()).number:
                found[task] = Incarnation(number, epoch(task), round_)


class RestartsWithoutLog:
    """The tasks that restarted without their log, when they did, and the tasks that have received from them since."""

    def __init__(self, context: CoordinatorContext, protocol: JobCheckpointing) -> None:
        self._context, self._protocol = context, protocol
        self._incarnations: dict[TaskId, Incarnation] = {}

    def reset(self) -> None:
        """A new generation begins; logs of earlier generations do not count."""
        self._incarnations = {}

    def resume(self, incarnations: Mapping[TaskId, Incarnation]) -> None:
        """Continues with the incarnations that processes have reported."""
        self._incarnations = dict(incarnations)

    @property
    def _receivers(self) -> set[TaskId]:
        """Tasks downstream of one that restarted without its log since the last completed checkpoint, except those that
        have restarted so since. They may have received rows that their logs cannot repeat."""
        context, found = self._context, set[TaskId]()
        for origin, incarnation in self._incarnations.items():
            if incarnation.number and incarnation.checkpoint >= self._protocol.epoch(origin):
                found.update(
                    t
                    for t in context.plan.hops[origin]
                    if self._incarnations.get(t, Incarnation()).round < incarnation.round
                )
        return found

    def begin(self, round_: Round) -> Instructions:
        """Marks the failed tasks that must restart without their log, as far as is clear before survivors answer."""
        if not self._context.policy.deduplicate:
            round_.without_log = set(round_.failed)
        return self._begin_receivers(round_)

    def _begin_receivers(self, round_: Round) -> Instructions:
        """Marks failed receivers of tasks that restarted without their log, and what failed behind any marked task."""
        more = (round_.failed & self._receivers) - round_.without_log if self._context.policy.deduplicate else set()
        self._spread(round_, more)
        names = ", ".join(str(task) for task in sorted(more))
        return [self._report(f"{names} failed before a checkpoint covered what others had sent again")] if more else []

    def learn(self, round_: Round) -> None:
        """Takes in incarnations that no process knew when it reported to a new coordinator: the first frame was under
        way then, and the sender has failed since. They began in an earlier round."""
        numbers = [answer.incarnations for answer in round_.answers]
        add_newer(self._incarnations, numbers, self._context.plan, self._protocol.epoch, round_.number - 1)

    def _report(self, reason: str) -> ReportEvent:
        return ReportEvent(RestartedWithoutLog(self._context.completed.number, reason))

    def find_orphans(self, round_: Round, survivors: Survivors) -> Instructions:
        """Once all have answered: reports if more tasks must restart without their log, which takes another round.
        Raises OrphanError if the job prefers consistency."""
        context = self._context
        self.learn(round_)
        if receivers := self._begin_receivers(round_):
            return receivers
        found = orphans(context.plan, round_.failed - round_.without_log, survivors)
        if not found:
            return []
        reason = explanation(context.plan, found, round_.failed)
        if not context.policy.availability:
            raise OrphanError(reason)
        self._spread(round_, set(found))
        return [self._report(reason)]

    def useless_replays(self, round_: Round, replaying: Set[TaskId]) -> list[TaskId]:
        """Those of the tasks ``replaying`` whose logs are of no use any more: such a task waits for frames from a task
        that restarts without its log, and these are not sent again. Failed tasks do not count."""
        reached = {task for origin in round_.without_log for task in self._context.plan.hops[origin]}
        return sorted((replaying & reached) - round_.failed)

    def _spread(self, round_: Round, more: set[TaskId]) -> None:
        """Failed tasks downstream of one that restarts without its log cannot use their logs either."""
        without_log = round_.without_log | more
        reached = {task for origin in without_log for task in self._context.plan.hops[origin]}
        round_.without_log = without_log | (round_.failed & reached)

    def settle(self, round_: Round) -> None:
        """The round ends: tasks that restart without their log begin another incarnation."""
        for task in round_.without_log if self._context.policy.replay else ():
            self._incarnations[task] = Incarnation(
                self._incarnations.get(task, Incarnation()).number + 1, self._protocol.epoch(task), round_.number
            )
        round_.incarnations = dict(self._incarnations)
