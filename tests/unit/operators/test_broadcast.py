"""Broadcast state is that of all rows of its stream so far, in each task, after any restarts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import DeadLetter, Record
from clonos_py.model.record_codec import encode
from clonos_py.operators.broadcast import BroadcastOperator
from clonos_py.operators.process import BroadcastProcess, broadcast_state, event_timer, state
from clonos_py.services.context import Context
from tests.unit.operators.scripted import Collected, ScriptedContext, opened, read_by, stored


class Row(Record):
    id: int
    key: str


class Rule(Record):
    name: str
    value: int


class Seen(Record):
    id: int
    number: int
    rules: str


class Rules(BroadcastProcess[Row, Rule, Seen]):
    """Says with each row how many of its key came before, and what the rules are. A rule of 0 is removed; one of less
    fails half-way."""

    rules: dict[str, list[int]] = broadcast_state()
    number: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Iterator[Seen]:
        self.number += 1
        yield Seen(row.id, self.number, repr(dict(self.rules)))

    def on_broadcast(self, rule: Rule, ctx: Context) -> Iterator[Seen]:
        assert ctx.key is None
        self.rules.setdefault(rule.name, []).append(rule.value)
        if rule.value < 0:
            raise ValueError("less than nothing")
        if rule.value == 0:
            del self.rules[rule.name]
            yield Seen(-1, 0, rule.name)


INPUTS = (ProcessInput(pa.schema([("key", pa.string())]), Row), ProcessInput(pa.schema([]), Rule, broadcast=True))
Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "x", "y"]), st.integers(-1, 3)), max_size=5)


def operator(process: Any = Rules, catch: bool = False) -> BroadcastOperator:
    return BroadcastOperator(process, INPUTS, (Seen,), False, catch)


def rows(*given: tuple[int, str]) -> pa.RecordBatch:
    return encode([Row(*row) for row in given], Row.schema())


def rules(*given: tuple[str, int]) -> pa.RecordBatch:
    return encode([Rule(*rule) for rule in given], Rule.schema())


@given(st.lists(STEPS, max_size=8), st.dictionaries(st.integers(1, 7), st.integers(1, 3), max_size=3))
def test_each_task_has_the_state_of_all_rows_so_far(batches: list[list[Step]], restarts: dict[int, int]) -> None:
    running: list[tuple[BroadcastOperator, ScriptedContext, Collected]] = []
    expected: list[tuple[int, int, str]] = []
    found: list[tuple[int, int, str]] = []
    state_now: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    numbers = itertools.count()
    for at, steps in enumerate(batches):
        if at == 0 or at in restarts:
            parts = [stored(one.snapshot()) for one, _, _ in running]
            running = []
            for low, high in itertools.pairwise(np.linspace(0, 128, restarts.get(at, 1) + 1).astype(int).tolist()):
                one = operator(catch=True)
                ctx, out = opened(one, ScriptedContext(range(low, high)))
                one.restore(read_by(parts, ctx.groups))
                running.append((one, ctx, out))
        for name, value in steps:
            if name in "xy":
                for one, _, _ in running:
                    one.on_rows(rules((name, value)), 1)
                if value > 0:
                    state_now = {**state_now, name: [*state_now.get(name, []), value]}
                elif value == 0:
                    state_now = {other: values for other, values in state_now.items() if other != name}
                    expected += [(-1, 0, name)] * len(running)
                continue
            batch, counts[name] = rows((next(numbers), name)), counts.get(name, 0) + 1
            expected.append((batch.column(0)[0].as_py(), counts[name], repr(state_now)))
            for one, ctx, _ in running:
                if key_groups(batch, ["key"], 128)[0] in ctx.groups:
                    one.on_rows(batch, 0)
        found += [(row["id"], row["number"], row["rules"]) for _, _, out in running for row in out.take()]
    assert sorted(found) == sorted(expected)


def test_a_row_that_fails_is_caught_in_each_task_and_changes_nothing() -> None:
    one = operator(catch=True)
    _, out = opened(one)
    one.on_rows(rules(("x", 1), ("x", -1)), 1)
    one.on_rows(rows((7, "a")), 0)
    assert [row["rules"] for row in out.rows()] == ["{'x': [1]}"]
    (letter,) = out.rows(1)
    assert letter.keys() == set(DeadLetter.schema().names)
    assert letter["error"] == "ValueError: less than nothing"


class Changing(Rules):
    def on_row(self, row: Row, ctx: Context) -> Iterator[Seen]:
        self.rules["x"] = []
        yield Seen(0, 0, "")


class Assigning(Rules):
    def on_row(self, row: Row, ctx: Context) -> Iterator[Seen]:
        self.rules = {}
        yield Seen(0, 0, "")


class Counting(Rules):
    def on_broadcast(self, rule: Rule, ctx: Context) -> Iterator[Seen]:
        self.number += 1
        yield Seen(0, 0, "")


class Waiting(Rules):
    later = event_timer()

    def on_broadcast(self, rule: Rule, ctx: Context) -> Iterator[Seen]:
        self.later.set(5)
        yield Seen(0, 0, "")

    @later.fires
    def fired(self, ctx: Context) -> None:
        pass


class Listing(Rules):
    def on_broadcast(self, rule: Rule, ctx: Context) -> Iterator[Seen]:
        self.rules = [rule]  # type: ignore[assignment]
        yield Seen(0, 0, "")


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (Changing, "only on_broadcast may change it"),
        (Assigning, "rules is broadcast state, which only on_broadcast may change"),
        (Counting, "on_broadcast has no state by key and no timers"),
        (Waiting, "on_broadcast has no state by key and no timers"),
        (Listing, "broadcast state is a dict"),
    ],
)
def test_state_is_changed_only_where_it_stays_the_same_in_all_tasks(process: Any, message: str) -> None:
    one = operator(process)
    opened(one)
    side, batch = (1, rules(("x", 1))) if process in (Counting, Waiting, Listing) else (0, rows((1, "a")))
    with pytest.raises(UserCodeError, match=message):
        one.on_rows(batch, side)
