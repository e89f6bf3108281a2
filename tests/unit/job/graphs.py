"""Small graphs of tasks for tests of orphans, and orphans by the definitions."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from clonos_py.model.ids import ChannelId, LogId, TaskId
from clonos_py.model.messages import HeldLogsReport
from clonos_py.model.operators import EventTime, Operator, Source
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.settings.protocols import ALIGNED
from tests.witness import NUMBERS


def graph(*edges: str, sharing_depth: int = -1) -> PhysicalPlan:
    """A task for every letter; ``ab`` is a channel from a to b. Letters are in topological order."""
    letters = sorted(set("".join(edges)))
    targets = {edge[1] for edge in edges}
    vertices = tuple(
        Vertex(letter, 1, None, (OperatorPlan(letter, "map", Operator, (NUMBERS,)),), ())
        if letter in targets
        else Vertex(letter, 1, SourcePlan(letter, Source, (NUMBERS,), EventTime((None,))), (), ())
        for letter in letters
    )
    wired = tuple(
        Edge(number, source, -1, 0, target, 0, 0, Partitioning.FORWARD, (), NUMBERS)
        for number, (source, target) in enumerate(map(tuple, edges))
    )
    return PhysicalPlan("graph", vertices, wired, sharing_depth=sharing_depth, protocol=ALIGNED)


def every_graph(letters: str) -> Iterator[tuple[str, ...]]:
    """All graphs in which every task has a neighbour."""
    possible = [a + b for a, b in itertools.combinations(letters, 2)]
    for size in range(1, len(possible) + 1):
        for edges in itertools.combinations(possible, size):
            if set("".join(edges)) == set(letters):
                yield edges


def task(letter: str) -> TaskId:
    return TaskId(letter, 0)


def logs(letters: str) -> list[LogId]:
    """The logs of the tasks with these letters."""
    return [task(letter).log_id for letter in letters]


def paths(plan: PhysicalPlan, origin: TaskId) -> Iterator[tuple[ChannelId, ...]]:
    """Every path that begins at a task, and every beginning of one."""
    for channel in plan.outputs[origin]:
        yield (channel,)
        yield from ((channel, *rest) for rest in paths(plan, plan.receiver(channel)))


def orphans_by_definition(
    plan: PhysicalPlan, failed: Collection[TaskId], survivors: Mapping[TaskId, HeldLogsReport]
) -> set[TaskId]:
    """The failed tasks with an event e that is not stable and of which Depend(e) has survivors and Log(e) none
    (Clonos, equations 1 to 3). Unobserved events may have happened: e may have gone down any single path, as far as
    its surviving receivers report that they have received something from there, or hold a log from there that depends
    on it, and not what this log depends on. A replacement that was given a log to replay reports how much of which logs
    it depends on."""
    return {
        origin
        for origin in failed
        if any(_lost_on(plan, path, origin, survivors) for path in paths(plan, origin))
        or any(_misses(answer, origin.log_id, survivors) for answer in survivors.values())
    }


def _shares(plan: PhysicalPlan, origin: TaskId, receiver: TaskId) -> bool:
    depth = plan.sharing_depth if plan.sharing_depth >= 0 else len(plan.tasks)
    return min(len(p) for p in paths(plan, origin) if plan.receiver(p[-1]) == receiver) <= depth


def _knows(plan: PhysicalPlan, channel: ChannelId, origin: TaskId, answer: HeldLogsReport, within: bool) -> bool:
    index = plan.inputs[plan.receiver(channel)].index(channel)
    return within and origin.log_id not in answer.incomplete.get(index, [])


def _misses(answer: HeldLogsReport, log: LogId, survivors: Mapping[TaskId, HeldLogsReport]) -> bool:
    known = {s.stop for other in survivors.values() for s in other.logs if s.log == log}
    return answer.needs.get(log, 0) > max(known, default=0)


def _lost_on(
    plan: PhysicalPlan, path: tuple[ChannelId, ...], origin: TaskId, survivors: Mapping[TaskId, HeldLogsReport]
) -> bool:
    depend, log = set(), set()
    uncertain = set()
    """Tasks on the path whose logs may depend on e: what failed, and what may have passed something on."""
    within = True
    for channel in path:
        receiver = plan.receiver(channel)
        within = within and _shares(plan, origin, receiver)
        answer = survivors.get(receiver)
        if answer is None:
            uncertain.add(receiver)
            continue
        index = plan.inputs[receiver].index(channel)
        knows = _knows(plan, channel, origin, answer, within)
        held = {plan.logs[held] for held in answer.logs_received.get(index, []) if origin.log_id not in answer.whole}
        took = index in answer.depends or not held.isdisjoint(uncertain) or (index in answer.replayed and not within)
        may_have_passed_on = not answer.has_own_log
        if took:
            depend.add(receiver)
        if knows:
            log.add(receiver)
        if may_have_passed_on:
            uncertain.add(receiver)
        if not took and not knows and not may_have_passed_on:
            return False
    return bool(depend) and not log
