"""Jobs whose rules come as a stream: each task has all of them, whatever dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clonos_py import BroadcastProcess, Context, Job, Record, broadcast_state, col, testing
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from clonos_py.testing.given_answers import GivenAnswers
from clonos_py.testing.jobs import run_once
from examples import limits
from tests import oracles
from tests.jobs.rows import EVENTS, Event, started

TXNS, LIMITS = oracles.rows("transactions.jsonl"), oracles.rows("limits.jsonl")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_transactions_are_judged_by_the_limits_of_their_time(parallelism: int) -> None:
    inputs: dict[str, Any] = {
        "txns": [[limits.Txn(**row) for row in TXNS[at : at + 5]] for at in range(0, len(TXNS), 5)],
        "limits": [limits.Limit(**row) for row in LIMITS],
    }
    out = testing.run(limits.job(), inputs, kills=2, seeds=3, parallelism=parallelism)["list"]
    assert Counter((row.account, row.at, row.limit) for row in out) == Counter(oracles.flagged(TXNS, LIMITS))


class Rule(Record):
    id: int


class Seen(Record):
    task: int
    rules: list[int]


class Listed(BroadcastProcess[Event, Rule, Seen]):
    """Reports the rules in the order in which they came, in each task."""

    rules: dict[int, int] = broadcast_state()

    def on_row(self, row: Event, ctx: Context) -> None:
        pass

    def on_broadcast(self, rule: Rule, ctx: Context) -> Seen:
        self.rules[rule.id] = len(self.rules)
        return Seen(0, list(self.rules))


def test_all_tasks_get_the_rules_of_several_sources_in_one_order() -> None:
    job = Job("ordered")
    read = [job.source(MemorySource([Rule(0)])).named(f"rules{number}") for number in range(3)]
    united = read[0].union(*read[1:])
    keyed = started(job).key_by("key")
    keyed.connect(united.broadcast().named("all")).process(Listed).sink(MemorySink()).named("out")
    given: dict[str, Any] = {f"rules{number}": [Rule(10 * number + at) for at in range(4)] for number in range(3)}
    out = run_once(job, {**given, "in": EVENTS}, 5, 1, 3, {}, None, GivenAnswers({}, {}, {}, {}))
    orders = Counter(tuple(row.rules) for row in out.rows["out"])
    assert set(orders.values()) == {3}, "three tasks"
    assert len(orders) == 12


def test_rules_of_one_task_need_no_task_more() -> None:
    for tasks, vertices in ((1, ["in", "process", "rules"]), (2, ["broadcast", "in", "process", "rules"])):
        job = Job("gathered")
        rules = job.source(MemorySource([Rule(0)])).named("rules").parallelism(tasks)
        started(job).key_by("key").connect(rules.broadcast()).process(Listed).sink(MemorySink()).named("out")
        made = plan(job, resolve(command_line={"parallelism": 2}))
        assert sorted(vertex.name for vertex in made.vertices) == vertices
        assert any("1 by key" in note and "1 to all tasks" in note for note in made.notes)


def test_mistakes_are_named() -> None:
    job = Job("wrong")
    events = started(job)
    rules = job.source(MemorySource([Rule(0)])).named("rules")
    keyed = events.key_by("key")
    with pytest.raises(GraphError, match="is not a process with a broadcast input: give a class"):
        keyed.connect(rules.broadcast()).process(limits.Txn)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="process: rows of a broadcast stream come in the order of arrival: leave"):
        keyed.connect(rules.broadcast()).process(Listed, in_order=True)
    with pytest.raises(GraphError, match="process: Event asks for column 'id'; there are value"):
        events.select("value", k=col("key")).key_by("k").connect(rules.broadcast()).process(Listed)
    with pytest.raises(GraphError, match="connect: the other stream belongs to job 'other'"):
        keyed.connect(Job("other").source(MemorySource([Rule(0)])).broadcast())
    with pytest.raises(GraphError, match=r"connect: .* is not a keyed stream: write key_by before it"):
        keyed.connect(rules)  # type: ignore[arg-type]


def test_broadcast_state_in_another_process_is_an_error() -> None:
    from clonos_py import Process

    class Alone(Process[Event, Event]):
        rules: dict[int, int] = broadcast_state()

        def on_row(self, row: Event, ctx: Context) -> Event | None:
            return row if self.rules else None

    job = Job("alone")
    started(job).key_by("key").process(Alone).sink(MemorySink()).named("out")
    with pytest.raises(UserCodeError, match="broadcast state is for a BroadcastProcess, behind"):
        testing.run(job, {"in": EVENTS})
