"""Lost determinants: what becomes of tasks that cannot repeat what their predecessors did (Clonos, section 5.4; D10).

Exactly-once leaves two ways. Consistency: the whole job goes back to its last checkpoint. Availability: the task
starts anew from that checkpoint and its receivers take whatever it sends, some of it for the second time. Whoever
received that runs on state that nobody can rebuild; should it fail before the next checkpoint is complete, it starts
anew, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.job.desk import Desk
from clonos_py.job.events import Happening
from clonos_py.job.orphans import orphans, story
from clonos_py.job.recovery import Round
from clonos_py.model.errors import OrphanError
from clonos_py.model.ids import TaskId
from clonos_py.model.segments import Life


class Losses:
    """Knows which tasks have started anew, when, and so which tasks have received from them since."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lives: dict[TaskId, Life] = {}

    def forget(self) -> None:
        """A new generation begins: there are no logs from before."""
        self._lives = {}

    def resume(self, lives: Mapping[TaskId, Life]) -> None:
        """Goes on with the lives that processes know of."""
        self._lives = dict(lives)

    @property
    def _receivers(self) -> set[TaskId]:
        """Tasks downstream of one that has started anew since the last completed checkpoint, and that have not done so
        themselves since: they may have received from it what their logs cannot repeat."""
        desk, found = self._desk, set[TaskId]()
        for origin, life in self._lives.items():
            if life.number and life.checkpoint >= desk.checkpoints.completed:
                found.update(t for t in desk.plan.hops[origin] if self._lives.get(t, Life()).round < life.round)
        return found

    def begin(self, round_: Round) -> None:
        """Says which tasks of a round start anew, as far as that is known before anybody has answered."""
        if not self._desk.policy.deduplicate:
            round_.anew = set(round_.failed)
        more = (round_.failed & self._receivers) - round_.anew if self._desk.policy.deduplicate else set()
        self._spread(round_, more)
        if more:
            names = ", ".join(str(task) for task in sorted(more))
            self._report(f"{names} failed before a checkpoint covered what others had sent anew")

    def _report(self, reason: str) -> None:
        self._desk.report(Happening.LAPSED, reason=reason, checkpoint=self._desk.checkpoints.completed)

    def judge(self, round_: Round) -> bool:
        """All have answered. Whether more tasks than was known must start anew, which takes another round. Raises
        OrphanError where the job prefers consistency."""
        desk = self._desk
        survivors = {desk.fleet.processes[answer.process].task: answer for answer in round_.answers}
        found = orphans(desk.plan, round_.failed - round_.anew, survivors)
        if not found:
            return False
        reason = story(desk.plan, found, round_.failed)
        if not desk.policy.availability:
            raise OrphanError(reason)
        self._spread(round_, set(found))
        self._report(reason)
        return True

    def _spread(self, round_: Round, more: set[TaskId]) -> None:
        """Failed tasks downstream of one that starts anew cannot use their logs either."""
        anew = round_.anew | more
        reached = {task for origin in anew for task in self._desk.plan.hops[origin]}
        round_.anew = anew | (round_.failed & reached)

    def settle(self, round_: Round) -> None:
        """The round ends: tasks that start anew begin another life."""
        completed = self._desk.checkpoints.completed
        for task in round_.anew if self._desk.policy.replay else ():
            self._lives[task] = Life(self._lives.get(task, Life()).number + 1, completed, round_.number)
        round_.lives = dict(self._lives)
