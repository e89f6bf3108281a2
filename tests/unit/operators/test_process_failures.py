"""A process that catches its failures: each becomes a dead letter, and leaves no other trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import DivergenceError, UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import DeadLetter, Instant, Record
from clonos_py.model.record_codec import encode
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import (
    ListState,
    MapState,
    Process,
    ProcessOperator,
    event_timer,
    list_state,
    map_state,
    processing_timer,
    state,
)
from clonos_py.services.context import Context
from tests.unit.operators.accounts import ACCOUNT
from tests.unit.operators.scripted import Collected, advance, opened, stored

POISON = 7


class Order(Record):
    account: int
    cents: int
    at: Instant


class Line(Record):
    text: str


class Ledger(Process[Order, Line]):
    """Uses every feature of a process before it fails on the poisonous amount."""

    total: int = state(0)
    recent: int = state(0, ttl="20us")
    seen: MapState[int, int] = map_state()
    soon = event_timer()
    later = event_timer()
    wall = processing_timer()

    def on_row(self, order: Order, ctx: Context) -> Iterator[Line]:
        self.total += order.cents
        self.recent += 1
        self.seen[order.cents] = self.seen.get(order.cents, 0) + 1
        self.soon.set(ctx.event_time + 5)
        if order.cents % 2:
            self.later.set(ctx.event_time + 12)
            self.wall.set(order.at + 100)
        else:
            self.later.clear()
            self.wall.clear()
        yield Line(f"{order.account}: {self.total}, {self.recent} recent, {self.seen}")
        if order.cents == POISON:
            raise ValueError("poison")

    @soon.fires
    def on_soon(self, ctx: Context) -> Line:
        return Line(f"soon at {ctx.event_time}: {self.total}, later at {self.later.at}, wall at {self.wall.at}")

    @later.fires
    def on_later(self, ctx: Context) -> Line:
        self.seen.clear()
        return Line(f"later at {ctx.event_time}")

    @wall.fires
    def on_wall(self, ctx: Context) -> Line:
        return Line("wall")


def orders(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    return encode([Order(*row) for row in rows], Order.schema())


def catching(process: type[Process[Any, Any]], *outputs: type[Record], in_order: bool = False) -> ProcessOperator:
    return ProcessOperator(process, [ProcessInput(ACCOUNT, Order, "at")], outputs or (Line,), in_order, catch=True)


def texts(out: Collected) -> list[str]:
    return [row["text"] for row in out.rows()]


def test_a_failing_row_becomes_a_dead_letter_and_changes_no_state_timers_or_results() -> None:
    ledger = catching(Ledger)
    ctx, out = opened(ledger)
    ctx.frame = (2, 17)
    ledger.on_rows(orders((1, 2, 10), (1, POISON, 11), (1, 4, 12)), 0)
    assert texts(out) == ["1: 2, 1 recent, {2: 1}", "1: 6, 2 recent, {2: 1, 4: 1}"]
    assert ctx.timers == set()
    record = json.dumps({"account": 1, "cents": POISON, "at": 11}, separators=(",", ":"))
    place = f"test_process_failures.py:{Ledger.on_row.__code__.co_firstlineno + 13} in on_row"
    letter = DeadLetter("probe", "ValueError: poison", record, 2, 17, 1, place)
    assert out.rows(1) == [{name: getattr(letter, name) for name in DeadLetter.__struct_fields__}]
    assert ctx.counted == {"dead_letters": 1}


def test_a_failing_timer_counts_as_fired_and_changes_nothing_else() -> None:
    class Failing(Process[Order, Line]):
        rung: int = state(0)
        tick = event_timer()
        other = event_timer()

        def on_row(self, order: Order, ctx: Context) -> Line:
            if self.tick.at is None:
                self.tick.set(order.cents)
            self.other.set(50)
            return Line(f"{self.rung} rung, tick at {self.tick.at}")

        @tick.fires
        def ticked(self, ctx: Context) -> Iterator[Line]:
            self.rung += 1
            self.tick.set(ctx.event_time + 5)
            self.other.clear()
            yield Line("ticked")
            raise ValueError("no")

        @other.fires
        def others(self, ctx: Context) -> Line:
            return Line("other")

    failing = catching(Failing)
    ctx, out = opened(failing)
    failing.on_rows(orders((3, 7, 1)), 0)
    advance(failing, ctx, 20)
    failing.on_rows(orders((3, 30, 21)), 0)
    assert texts(out) == ["0 rung, tick at 7", "0 rung, tick at 30"]
    assert [(row["error"], json.loads(row["record"]), row["row"]) for row in out.rows(1)] == [
        ("ValueError: no", {"timer": "tick", "at": 7, "key": {"account": 3}}, -1)
    ]
    advance(failing, ctx, 50)
    assert texts(out)[2:] == ["other"]


def test_invalid_results_and_state_that_cannot_be_stored_fail_their_row() -> None:
    class Sloppy(Process[Order, Line]):
        thing: int = state(0)

        def on_row(self, order: Order, ctx: Context) -> list[Any]:
            if order.cents == 1:
                self.thing = "text"  # type: ignore[assignment]
            if order.cents == 2:
                return [Line("fine"), Line(2)]  # type: ignore[arg-type]
            if order.cents == 3:
                return [Line("fine"), order]
            return [Line(str(self.thing))]

    sloppy = catching(Sloppy)
    _, out = opened(sloppy)
    sloppy.on_rows(orders(*((1, cents, 0) for cents in range(5))), 0)
    assert texts(out) == ["0", "0"]
    reasons = ["Sloppy.thing holds 'text'", "field 'text' is 2", "which is not one of its outputs: Line"]
    for row, reason in zip(out.rows(1), reasons, strict=True):
        assert reason in row["error"]
    assert sloppy.snapshot().tables["keys"] == []


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
NOT_STORED: dict[str, Any] = {
    "text": "one",
    "object": object(),
    "function": len,
    "float": 1.5,
    "integer of more than 64 bits": 2**70,
    "record": Line("one"),
    "endless": ENDLESS,
}


@pytest.mark.parametrize("value", NOT_STORED.values(), ids=NOT_STORED)
@pytest.mark.parametrize("ttl", [None, "10s"])
@pytest.mark.parametrize("change", ["set", "append", "inside"])
def test_an_entry_that_cannot_be_stored_fails_the_row_that_puts_it_there(
    change: str, ttl: str | None, value: Any
) -> None:
    """If failures are caught. If not, the next checkpoint names the key and this remedy: a check of all entries after
    each row costs more than most functions."""

    class Sloppy(Process[Order, Line]):
        by_name: MapState[str, int] = map_state(ttl=ttl)
        listed: ListState[int] = list_state(ttl=ttl)
        inside: MapState[str, list[int]] = map_state(ttl=ttl)

        def on_row(self, order: Order, ctx: Context) -> Line:
            found = value if order.cents == POISON else order.cents
            if change == "set":
                self.by_name[str(order.cents)] = found
            elif change == "append":
                self.listed.append(found)
            else:
                self.inside.setdefault("all", []).append(found)
            return Line(f"{self.by_name} {self.listed} {self.inside}")

    sloppy, clean = catching(Sloppy), catching(Sloppy)
    (_, out), (_, expected) = opened(sloppy), opened(clean)
    sloppy.on_rows(orders((1, 1, 0), (1, POISON, 0), (1, 2, 0)), 0)
    clean.on_rows(orders((1, 1, 0), (1, 2, 0)), 0)
    assert texts(out) == texts(expected)
    assert [json.loads(row["record"])["cents"] for row in out.rows(1)] == [POISON]
    assert [chunk.rows for chunk in sloppy.snapshot().tables["keys"]] == [
        chunk.rows for chunk in clean.snapshot().tables["keys"]
    ]
    failing = ProcessOperator(Sloppy, [ProcessInput(ACCOUNT, Order, "at")], (Line,))
    opened(failing)
    failing.on_rows(orders((1, 1, 0), (5, POISON, 0), (1, 2, 0)), 0)
    with pytest.raises(
        UserCodeError, match=r"Sloppy\..* holds .*; found at a checkpoint, .* key \[5\]: with .catch\(\)"
    ):
        failing.snapshot()


def test_errors_of_the_engine_are_not_caught() -> None:
    class Diverging(Process[Order, Line]):
        def on_row(self, order: Order, ctx: Context) -> None:
            raise DivergenceError("replay differs")

    diverging = catching(Diverging)
    opened(diverging)
    with pytest.raises(DivergenceError):
        diverging.on_rows(orders((1, 1, 1)), 0)


Step = list[tuple[int, int, int]] | int
rows_of = st.lists(st.tuples(st.integers(0, 2), st.integers(5, 8), st.integers(0, 60)), max_size=6)
histories = st.lists(rows_of | st.integers(0, 70), max_size=12)


def play(history: list[Step], in_order: bool, restart_at: int, skip: bool) -> tuple[list[str], list[int]]:
    """The reports, and the cents of the dead letters; poison is left out beforehand, if ``skip``."""
    watermark = -1
    ledger = catching(Ledger, in_order=in_order)
    ctx, out = opened(ledger)
    for number, step in enumerate([*history, MAX_TIME]):
        if number == restart_at:
            snapshot = stored(ledger.snapshot())
            ledger = catching(Ledger, in_order=in_order)
            ctx, _ = opened(ledger)
            ledger.out, ctx.watermark = out, watermark
            ledger.restore([snapshot])
        if not isinstance(step, int):
            ledger.on_rows(orders(*(row for row in step if not (skip and row[1] == POISON))), 0)
        elif step > watermark:
            watermark = step
            advance(ledger, ctx, watermark)
    ledger.on_timer(1_000)
    return texts(out), [json.loads(row["record"])["cents"] for row in out.rows(1)]


@given(histories, st.booleans(), st.integers(0, 12))
def test_rows_that_fail_do_not_change_the_output_of_others(
    history: list[Step], in_order: bool, restart_at: int
) -> None:
    emitted, failed = play(history, in_order, restart_at, skip=False)
    assert (emitted, []) == play(history, in_order, -1, skip=True)
    assert set(failed) <= {POISON}
    if not in_order:
        assert len(failed) == sum(row[1] == POISON for step in history if not isinstance(step, int) for row in step)
