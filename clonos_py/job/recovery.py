"""The decisions of a recovery round, without its course: restore points, peers, merged logs, orphans (D7, D9, D10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clonos_py.causal.log import merge
from clonos_py.model.errors import OrphanError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Holdings, Peer, Replay, Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Segment
from clonos_py.model.snapshots import Manifest


@dataclass
class Round:
    """One round: the failed tasks, what survivors still owe an answer, and the answers."""

    number: int
    failed: set[TaskId]
    started: bool = False
    """Whether Promote and Sever were sent."""
    awaited: set[int] = field(default_factory=set)
    answers: list[Holdings] = field(default_factory=list)


def restore_point(manifest: Manifest | None, task: TaskId, plan: PhysicalPlan) -> Restore:
    """Where a task starts from. At another parallelism it gets the snapshots of all former instances."""
    if manifest is None:
        return Restore(0)
    vertex = plan.by_name[task.vertex]
    names = [operator.name for operator in vertex.operators]
    if vertex.source is not None:
        names.append(vertex.source.name)
    if manifest.parallelism == {v.name: v.parallelism for v in plan.vertices}:
        handle = next(h for h in manifest.tasks if h.task == task)
        operators = {name: [handle.operators[name]] for name in names if name in handle.operators}
        return Restore(manifest.checkpoint, operators, handle.progress, dict(handle.committables))
    operators = {name: manifest.parts(name) for name in names}
    committables: dict[str, list[bytes]] = {}
    if task.index == 0:
        for handle in manifest.tasks:
            for name, named in handle.committables.items():
                if name in names:
                    committables.setdefault(name, []).extend(named)
    return Restore(manifest.checkpoint, {n: parts for n, parts in operators.items() if parts}, None, committables)


def peers(
    plan: PhysicalPlan,
    task: TaskId,
    owners: Mapping[TaskId, tuple[str, Attempt]],
    reset: Collection[TaskId] = (),
    of: Collection[TaskId] | None = None,
) -> list[Peer]:
    """Whom a task subscribes to, by input, only senders in ``of`` if given; those in ``reset`` number anew."""
    found = []
    for channel in plan.inputs[task]:
        sender = plan.sender(channel)
        if of is None or sender in of:
            address, attempt = owners[sender]
            found.append(Peer(channel, address, attempt, sender in reset))
    return found


def replay_of(
    plan: PhysicalPlan, task: TaskId, round_: Round, checkpoint: int, aborted: Sequence[int], with_log: bool
) -> Replay:
    """What a promoted process needs: the merged logs and what survivors have. Raises ProtocolError if holders differ.

    Who replays a log depends on whatever it depends on, and is to hold it as its predecessor did: should an upstream
    task fail again before it has sent anything, nobody else may be left who knows."""
    if not with_log:
        return Replay(round_.number, [], [], list(aborted))
    log = _merged(plan, task, round_, checkpoint)
    failed_upstream = [origin for origin in sorted(round_.failed) if log and task in plan.hops[origin]]
    upstream = [s for origin in failed_upstream for s in _merged(plan, origin, round_, checkpoint)]
    own = set(plan.outputs[task])
    expected = [e for answer in round_.answers for e in answer.received if e.channel in own]
    return Replay(round_.number, log, expected, list(aborted), upstream)


def _merged(plan: PhysicalPlan, task: TaskId, round_: Round, checkpoint: int) -> list[Segment]:
    number = plan.tasks.index(task)
    return merge(([s for s in answer.logs if s.task == number] for answer in round_.answers), checkpoint)


def check_orphans(plan: PhysicalPlan, failed: Collection[TaskId]) -> None:
    """Raises OrphanError if a survivor may depend on determinants that died with their holders (Clonos, Figure 4).

    That needs a path from a failed task through failed tasks only that is longer than the sharing depth.
    """
    depth = plan.depth if plan.sharing_depth < 0 else plan.sharing_depth
    for start in sorted(failed):
        front, seen = {start}, {start}
        while front:
            reached = {plan.receiver(c) for task in front for c in plan.outputs[task]} - seen
            orphans = [t for t in sorted(reached) if t not in failed and plan.hops[start][t] > depth]
            if orphans:
                raise OrphanError(
                    f"{orphans[0]} depends on {start}, whose determinants died with {_names(failed)}: "
                    f"sharing depth {depth} covers {depth} consecutive failures"
                )
            seen |= reached
            front = {t for t in reached if t in failed}


def _names(tasks: Iterable[TaskId]) -> str:
    return ", ".join(str(t) for t in sorted(tasks))
