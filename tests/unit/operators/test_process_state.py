"""The state of process functions: values per key, their lifetime, and snapshots of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import (
    MapState,
    Process,
    ProcessOperator,
    event_timer,
    list_state,
    map_state,
    state,
)
from clonos_py.services.context import Context
from tests.unit.operators.accounts import Alarm, Alert, Audit, Story, Txn, operator, texts, txns
from tests.unit.operators.scripted import advance, opened, stored


def test_values_return_to_their_default_after_the_ttl_and_leave_the_state() -> None:
    class Fading(Process[Txn, Audit]):
        count: int = state(0, ttl="10us")
        items: list[int] = state([], ttl="10us")

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            self.count += 1
            self.items.append(txn.cents)
            return Audit(f"{self.count} {self.items}")

    fading = operator(Fading, Audit)
    ctx, out = opened(fading)
    fading.on_rows(txns((1, 7, 0), (1, 8, 9), (1, 9, 19)), 0)
    assert texts(out) == ["1 [7]", "2 [7, 8]", "1 [9]"]
    assert fading.snapshot().tables["keys"]
    advance(fading, ctx, 29)
    assert fading.snapshot().tables["keys"][-1].rows.column("state").to_pylist() == [None]


def test_in_order_a_ttl_is_measured_by_the_times_of_rows() -> None:
    class Fading(Process[Txn, Audit]):
        count: int = state(0, ttl="10us")

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            self.count += 1
            return Audit(f"{txn.cents}: {self.count}")

    rows = [(1, 1, 0), (1, 2, 9), (1, 3, 19), (1, 4, 25)]
    for watermarks in ((100,), (1, 24, 100), (9, 19, 25, 26)):
        fading = operator(Fading, Audit, in_order=True)
        ctx, out = opened(fading)
        fading.on_rows(txns(*rows), 0)
        for watermark in watermarks:
            advance(fading, ctx, watermark)
        assert texts(out) == ["1: 1", "2: 2", "3: 1", "4: 2"]


class Reported(Process[Txn, Audit]):
    """Counts the rows of a key, and reports their number 5 us later."""

    count: int = state(0, ttl="10us")
    seen: list[int] = list_state(ttl="10us")
    report = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.count += 1
        self.seen.append(txn.cents)
        self.report.set(ctx.event_time + 5)

    @report.fires
    def reports(self, ctx: Context) -> Audit:
        return Audit(f"{ctx.event_time}: {self.count} {self.seen}")


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("watermarks", [(MAX_TIME,), (1_000, MAX_TIME), (5, 6, 8, 14, MAX_TIME)])
def test_a_ttl_is_measured_by_the_times_of_timers(watermarks: tuple[int, ...], in_order: bool) -> None:
    reported = operator(Reported, Audit, in_order=in_order)
    ctx, out = opened(reported)
    reported.on_rows(txns((1, 7, 0), (1, 8, 3), (2, 9, 9)), 0)
    for watermark in watermarks:
        advance(reported, ctx, watermark)
    assert texts(out) == ["8: 2 [7, 8]", "14: 1 [9]"]


class Overdue(Process[Txn, Audit]):
    """Sets a timer to a time in the past."""

    count: int = state(0, ttl="10us")
    report = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.count += txn.cents
        self.report.set(5)

    @report.fires
    def reports(self, ctx: Context) -> Audit:
        return Audit(str(self.count))


def test_an_overdue_timer_sees_the_same_values_with_and_without_a_restart() -> None:
    """Expired values are removed from time to time, and at other times after a restore."""
    found = []
    for restarts in (False, True):
        overdue = operator(Overdue, Audit)
        ctx, out = opened(overdue)
        overdue.on_rows(txns((1, 1, 0)), 0)
        advance(overdue, ctx, 9)
        if restarts:
            snapshot = stored(overdue.snapshot())
            overdue = operator(Overdue, Audit)
            ctx, out = opened(overdue)
            ctx.watermark = 9
            overdue.restore([snapshot])
        advance(overdue, ctx, 10)
        overdue.on_rows(txns((1, 2, 10)), 0)
        advance(overdue, ctx, 11)
        found.append(texts(out)[-1])
    assert found == ["2", "2"]


def test_a_class_as_a_default_is_refused() -> None:
    with pytest.raises(
        GraphError, match=r"state\(int\): it takes the value that a key has at first, such as state\(0\)"
    ):
        state(int, ttl="10us")


@pytest.mark.parametrize("value", [[(1, 2)], {"a": {1}}, [Decimal("0.1")], (1, 2)])
def test_untyped_values_that_would_be_restored_differently_are_refused(value: Any) -> None:
    class Kept(Process[Txn, Audit]):
        seen = state(None)

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.seen = value

    kept = operator(Kept, Audit)
    opened(kept)
    kept.on_rows(txns((1, 1, 0)), 0)
    with pytest.raises(UserCodeError, match=r"Kept.seen holds .*, which a checkpoint gives back as .*: declare"):
        kept.snapshot()


def test_each_key_has_its_own_mutable_default() -> None:
    class Lists(Process[Txn, Audit]):
        mine: list[int] = list_state()

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            self.mine.append(txn.cents)
            return Audit(str(self.mine))

    lists = operator(Lists, Audit)
    _, out = opened(lists)
    lists.on_rows(txns((1, 1, 0), (2, 2, 0), (1, 3, 0), (None, 4, 0), (None, 5, 0)), 0)
    assert texts(out) == ["[1]", "[2]", "[1, 3]", "[4]", "[4, 5]"]


def test_equal_float_keys_are_one_key() -> None:
    class Count(Process[Any, Audit]):
        rows: int = state(0)

        def on_row(self, row: Any, ctx: Context) -> Audit:
            self.rows += 1
            return Audit(str(self.rows))

    count = ProcessOperator(Count, [ProcessInput(pa.schema([("key", pa.float64())]), None)], (Audit,))
    _, out = opened(count)
    nan = float("nan")
    count.on_rows(pa.RecordBatch.from_pydict({"key": [0.0, -0.0, nan, -nan, None]}), 0)
    assert texts(out) == ["1", "2", "1", "2", "1"]


def test_a_snapshot_contains_only_changed_keys_and_drops_empty_ones() -> None:
    story = operator(Story, Audit)
    opened(story)
    story.on_rows(txns(*((key, 2, 0) for key in range(100))), 0)
    first = story.snapshot().tables["keys"]
    story.on_rows(txns((7, 2, 1)), 0)
    second = story.snapshot().tables["keys"]
    assert second[0] is first[0]
    assert [chunk.rows.num_rows for chunk in second] == [100, 1]
    assert story.snapshot().tables["keys"] == second

    alarm = operator(Alarm, Audit)
    opened(alarm)
    alarm.on_rows(txns((None, 50, 0)), 0)
    alarm.snapshot()
    alarm.on_rows(txns((None, 0, 0)), 0)
    states = [chunk.rows.column("state").is_valid().to_pylist() for chunk in alarm.snapshot().tables["keys"]]
    assert states == [[True], [False]]


def test_the_log_of_changes_is_rewritten_when_it_outgrows_the_state() -> None:
    story = operator(Story, Audit)
    opened(story)
    for time in range(40):
        story.on_rows(txns(*((key, 2, time) for key in range(100))), 0)
        chunks = story.snapshot().tables["keys"]
        assert sum(chunk.rows.num_rows for chunk in chunks) <= 2 * 100 + 1_024


@pytest.mark.parametrize("value", [object(), "text", 1.5, 2**70, Decimal(1)])
def test_a_value_of_another_type_than_declared_is_named_before_it_is_stored(value: Any) -> None:
    class Hoarder(Process[Txn, Alert]):
        thing: int | None = state(None)

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.thing = value

    hoarder = operator(Hoarder, Alert)
    opened(hoarder)
    hoarder.on_rows(txns((1, 1, 1)), 0)
    with pytest.raises(UserCodeError, match=r"Hoarder.thing holds .*, which cannot be stored as it is declared"):
        hoarder.snapshot()


def test_restored_values_have_their_types() -> None:
    seen: list[Any] = []

    class Keeper(Process[Txn, Alert]):
        row: Txn | None = state(None)
        amounts: MapState[str, Decimal] = map_state()
        sum = state(Decimal(0))
        pair: tuple[int, str] = state((0, ""))
        raw: bytes = state(b"")

        def on_row(self, txn: Txn, ctx: Context) -> None:
            seen.append((self.row, dict(self.amounts), self.sum, self.pair, self.raw))
            self.row = txn
            self.amounts["a"] = self.sum = Decimal("1.50")
            self.pair = (txn.cents, "x")
            self.raw = b"\xff"

    keeper, successor = operator(Keeper, Alert), operator(Keeper, Alert)
    opened(keeper)
    opened(successor)
    keeper.on_rows(txns((1, 7, 3)), 0)
    successor.restore([stored(keeper.snapshot())])
    for process in (keeper, successor):
        process.on_rows(txns((1, 8, 4)), 0)
    assert seen[1] == seen[2] == (Txn(1, 7, 3), {"a": Decimal("1.50")}, Decimal("1.50"), (7, "x"), b"\xff")
    assert repr(seen[1]) == repr(seen[2])


def test_a_checkpoint_with_another_type_is_named() -> None:
    class Before(Process[Txn, Alert]):
        thing: str = state("")

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.thing = "text"

    class After(Process[Txn, Alert]):
        thing: int = state(0)

    before, after = operator(Before, Alert), operator(After, Alert)
    opened(before)
    opened(after)
    before.on_rows(txns((1, 1, 1)), 0)
    with pytest.raises(GraphError, match=r"After.thing is declared as another type than the checkpoint holds"):
        after.restore([before.snapshot()])


def test_rows_of_one_time_keep_the_order_of_arrival_through_snapshots() -> None:
    story = operator(Story, Audit, in_order=True)
    ctx, out = opened(story)
    story.on_rows(txns((1, 2, 5), (1, 4, 20)), 0)
    story.snapshot()
    story.on_rows(txns((1, 6, 20)), 0)
    story.snapshot()
    advance(story, ctx, 10)
    out.batches.clear()
    story.on_rows(txns((1, 8, 20)), 0)
    assert [chunk.rows.num_rows for chunk in story.snapshot().tables["rows"]] == [1, 1, 1]
    advance(story, ctx, 21)
    assert [text.split(" at")[0] for text in texts(out)] == ["1: 4", "1: 6", "1: 8"]
