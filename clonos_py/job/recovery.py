"""The decisions of a recovery round: peers and merged logs (D7, D9, D10). Its course is in ``rounds.py``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.causal.log import merge
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.states import RoundKind
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import HeldLogsReport, Peer, Replay
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation, LogSegment


@dataclass
class Round:
    """One round: the failed tasks, the survivors that have not answered yet, and the answers."""

    number: int
    kind: RoundKind
    failed: set[TaskId]
    awaited: set[int] = field(default_factory=set)
    answers: list[HeldLogsReport] = field(default_factory=list)
    without_log: set[TaskId] = field(default_factory=set)
    """Failed tasks that restart without their logs; below exactly-once all failed tasks."""
    incarnations: Mapping[TaskId, Incarnation] = field(default_factory=dict)
    """Of tasks that have restarted without their logs, those of this round included."""

    def await_answer(self, process: TaskProcess) -> None:
        """This process is asked what it holds: the round does not end before it has answered."""
        self.awaited.add(process.number)

    def take_answer(self, answer: HeldLogsReport) -> bool:
        """Takes the answer of a process that is awaited. Returns False if it is not, or has answered another round."""
        if answer.round != self.number or answer.process not in self.awaited:
            return False
        self.awaited.discard(answer.process)
        self.answers.append(answer)
        return True


def peers(
    plan: PhysicalPlan,
    task: TaskId,
    owners: Mapping[TaskId, tuple[str, Attempt]],
    reset: Collection[TaskId] = (),
    of: Collection[TaskId] | None = None,
) -> list[Peer]:
    """The senders that a task subscribes to, by input; only those in ``of`` if given. Those in ``reset`` renumber."""
    found = []
    for channel in plan.inputs[task]:
        sender = plan.sender(channel)
        if of is None or sender in of:
            address, attempt = owners[sender]
            found.append(Peer(channel, address, attempt, sender in reset))
    return found


def replay_of(
    plan: PhysicalPlan, task: TaskId, round_: Round, epoch: Callable[[TaskId], int], void: Sequence[int]
) -> Replay:
    """What a promoted process needs: the merged logs and what survivors have received. Raises ProtocolError if holders
    differ. ``epoch``: gives the epoch of a task's restart point. ``void``: epochs that no longer count.

    A process that replays a log depends on everything that the log depends on, so it must hold those upstream logs as
    its predecessor did. If an upstream task fails again before it has sent anything, no other process may hold its log.
    """
    incarnation = round_.incarnations.get(task, Incarnation())
    if task in round_.without_log:
        skipped = _merged(plan, task, round_, epoch(task)) if plan.gaps else []
        return Replay(round_.number, skipped, [], list(void), complete=list(plan.logs), incarnation=incarnation)
    log = _merged(plan, task, round_, epoch(task))
    whole = _whole(task.log_id, round_) | {answer.own for answer in round_.answers}
    known = [o for n, o in plan.logs.items() if task in plan.hops[o] and (o in round_.failed or n in whole)]
    upstream = [s for origin in known if log for s in _merged(plan, origin, round_, epoch(origin))]
    complete = [origin.log_id for origin in (*known, task)]
    own = set(plan.outputs[task])
    expected = [e for answer in round_.answers for e in answer.received if e.channel in own]
    needs = {of: end for of, end in _needs(plan, task, round_).items() if of not in complete} if log else {}
    return Replay(round_.number, log, expected, list(void), upstream, complete, needs, incarnation)


def _merged(plan: PhysicalPlan, task: TaskId, round_: Round, epoch: int) -> list[LogSegment]:
    """The merged log of the current incarnation; empty if all of it is lost."""
    log, incarnation = task.log_id, round_.incarnations.get(task, Incarnation()).number
    return merge(
        ([s for s in answer.logs if s.log == log and s.incarnation == incarnation] for answer in round_.answers),
        epoch,
        plan.logs,
    )


def _whole(log: LogId, round_: Round) -> set[LogId]:
    """The logs of which the holders of the longest log have everything that this log depends on."""
    longest = max((answer.end(log) for answer in round_.answers), default=0)
    return {whole for answer in round_.answers if answer.end(log) == longest for whole in answer.whole}


def newest_epoch_named(plan: PhysicalPlan, answers: Sequence[HeldLogsReport], epoch: Callable[[TaskId], int]) -> int:
    """The newest epoch named in any log that will be replayed; 0 if there is none. ``epoch``: see ``replay_of``."""
    by_log: dict[LogId, list[LogSegment]] = {}
    found = 0
    for answer in answers:
        for segment in answer.logs:
            by_log.setdefault(segment.log, []).append(segment)
    for log, segments in by_log.items():
        found = max(found, newest_epoch_in(merge([segments], epoch(plan.logs[log]), plan.logs)))
    return found


def newest_epoch_in(log: Sequence[LogSegment]) -> int:
    """The newest epoch that a log names; 0 if there is none."""
    codec, found = LogCodec(), 0
    for segment in log:
        named = (d.checkpoint for d in codec.load(segment) if isinstance(d, Trigger | Abort))
        found = max(found, segment.epoch, *named)
    return found


def _needs(plan: PhysicalPlan, task: TaskId, round_: Round) -> dict[LogId, int]:
    """How far the logs upstream of a task's log are held by any process. The task's log depends on no more of them."""
    found: dict[LogId, int] = {}
    for answer in round_.answers:
        for log, end in answer.ends.items():
            if plan.shares(plan.logs[log], task):
                found[log] = max(end, found.get(log, 0))
    return found
