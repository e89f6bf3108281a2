"""Process functions: state and timers per key, in an order that no batch, snapshot or parallelism changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import DivergenceError, GraphError, UserCodeError
from clonos_py.model.operators import Operator
from clonos_py.model.record import Instant, Record, at
from clonos_py.model.record_codec import encode
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, micros
from clonos_py.operators.process import (
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
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, stored


class Txn(Record):
    account: int | None
    cents: int
    at: Instant | None


class Alert(Record):
    account: int | None
    cents: int


class Audit(Record):
    text: str


class Fraud(Process[Txn, Alert]):
    probed: bool = state(False, ttl="1d")
    seen: MapState[str, int] = map_state()
    forget = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> Iterator[Alert]:
        if self.probed and txn.cents > 50_000:
            yield Alert(txn.account, txn.cents)
        self.probed = txn.cents < 100
        self.seen["rows"] = self.seen.get("rows", 0) + 1
        self.forget.set(ctx.event_time + micros("1m"))

    @forget.fires
    def expired(self, ctx: Context) -> None:
        self.probed = False


class Story(Process[Txn, Audit]):
    """Tells everything that happens, in order."""

    last: Txn | None = state(None)
    total: int = state(0)
    soon = event_timer()
    later = event_timer()

    def on_row(self, txn: Txn, ctx: Context) -> list[Audit]:
        before = "nothing" if self.last is None else str(self.last.cents)
        self.last = txn
        self.total += txn.cents
        self.soon.set(ctx.event_time + 5)
        if txn.cents % 2:
            self.later.set(ctx.event_time + 12)
        else:
            self.later.clear()
        return [Audit(f"{txn.account}: {txn.cents} at {ctx.event_time} after {before}, {self.total} in all")]

    @soon.fires
    def on_soon(self, ctx: Context) -> Audit:
        return Audit(f"{self.last.account if self.last else None}: soon at {ctx.event_time}")

    @later.fires
    def on_later(self, ctx: Context) -> Audit | None:
        self.last = None
        return Audit(f"later at {ctx.event_time}, {self.total} in all")


def txns(*rows: tuple[int | None, int, int | None]) -> pa.RecordBatch:
    return encode([Txn(*row) for row in rows], Txn.schema())


def operator(process: type[Process[Any, Any]], *outputs: type[Record], in_order: bool = False) -> ProcessOperator:
    return ProcessOperator(process, ("account",), Txn, outputs, in_order, "at")


def texts(out: Collected) -> list[str]:
    return [row["text"] for row in out.rows()]


def test_the_example_of_a_large_amount_after_a_probe() -> None:
    fraud = operator(Fraud, Alert, in_order=True)
    ctx, out = opened(fraud)
    fraud.on_rows(txns((1, 90_000, at("30s")), (1, 50, at("0s")), (2, 90_000, at("1s"))), 0)
    fraud.on_rows(txns((3, 50, at("0s")), (3, 90_000, at("61s"))), 0)
    advance(fraud, ctx, MAX_TIME)
    assert out.rows() == [{"account": 1, "cents": 90_000}]


def test_rows_and_timers_come_in_the_order_of_event_time() -> None:
    story = operator(Story, Audit, in_order=True)
    ctx, out = opened(story)
    story.on_rows(txns((1, 1, 10), (2, 2, 15), (1, 3, 4)), 0)
    assert texts(out) == []
    advance(story, ctx, 15)
    assert texts(out) == [
        "1: 3 at 4 after nothing, 3 in all",
        "1: soon at 9",
        "1: 1 at 10 after 3, 4 in all",
        "1: soon at 15",
    ]
    out.batches.clear()
    advance(story, ctx, MAX_TIME)
    assert texts(out) == ["2: 2 at 15 after nothing, 2 in all", "2: soon at 20", "later at 22, 4 in all"]


def test_without_in_order_rows_are_taken_as_they_come() -> None:
    story = operator(Story, Audit)
    ctx, out = opened(story)
    story.on_rows(txns((1, 1, 10), (1, 3, 4)), 0)
    assert texts(out) == ["1: 1 at 10 after nothing, 1 in all", "1: 3 at 4 after 1, 4 in all"]
    out.batches.clear()
    advance(story, ctx, 9)
    assert texts(out) == ["1: soon at 9"]


def test_late_rows_and_rows_without_a_time_are_dropped_where_order_is_promised() -> None:
    story = operator(Story, Audit, in_order=True)
    ctx, out = opened(story)
    advance(story, ctx, 5)
    story.on_rows(txns((1, 1, 4), (1, 2, None), (1, 3, 5)), 0)
    advance(story, ctx, 6)
    assert texts(out) == ["1: 3 at 5 after nothing, 3 in all"]
    assert ctx.counted == {"late_rows": 1, "null_time_rows": 1}


def test_an_undeclared_attribute_cannot_be_assigned() -> None:
    class Sloppy(Process[Txn, Alert]):
        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.sum = txn.cents

    sloppy = operator(Sloppy, Alert)
    opened(sloppy)
    with pytest.raises(
        UserCodeError, match=r"'probe' failed on record .*Sloppy.sum is not declared; write 'sum = state"
    ):
        sloppy.on_rows(txns((1, 2, 3)), 0)


def test_a_timer_without_a_method_is_an_error_at_its_class() -> None:
    with pytest.raises(GraphError, match=r"timer 'tick' of Deaf calls nothing; decorate a method with @tick.fires"):

        class Deaf(Process[Txn, Alert]):
            tick = event_timer()


def test_order_and_ttl_need_an_event_time() -> None:
    with pytest.raises(GraphError, match="Fraud needs an event time"):
        ProcessOperator(Fraud, ("account",), Txn, (Alert,))
    with pytest.raises(GraphError, match="Story needs an event time"):
        ProcessOperator(Story, ("account",), Txn, (Audit,), in_order=True)


def test_results_go_to_the_port_of_their_type() -> None:
    class Both(Process[Txn, Alert | Audit]):
        def on_row(self, txn: Txn, ctx: Context) -> Iterator[Alert | Audit]:
            yield Audit("seen")
            if txn.cents > 1:
                yield Alert(txn.account, txn.cents)

    both = operator(Both, Alert, Audit)
    _, out = opened(both)
    both.on_rows(txns((1, 1, 0), (2, 2, 0)), 0)
    assert out.rows(0) == [{"account": 2, "cents": 2}]
    assert out.rows(1) == [{"text": "seen"}] * 2
    strict = operator(Both, Alert)
    opened(strict)
    with pytest.raises(UserCodeError, match=r"Both gave Audit\(text='seen'\), which is none of its outputs: Alert"):
        strict.on_rows(txns((1, 1, 0)), 0)


def test_a_result_that_does_not_fit_its_schema_is_named() -> None:
    class Wrong(Process[Txn, Alert]):
        def on_row(self, txn: Txn, ctx: Context) -> Alert:
            return Alert(1, "much")  # type: ignore[arg-type]

    wrong = operator(Wrong, Alert)
    opened(wrong)
    with pytest.raises(UserCodeError, match=r"operator 'probe' gave Alert\(.*field 'cents' is 'much'"):
        wrong.on_rows(txns((1, 1, 0)), 0)


def test_a_failing_timer_is_named_and_errors_of_the_engine_pass() -> None:
    class Failing(Process[Txn, Alert]):
        tick = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            if txn.cents:
                raise DivergenceError("replay differs")
            self.tick.set(7)

        @tick.fires
        def ticked(self, ctx: Context) -> None:
            raise ValueError("no")

    failing = operator(Failing, Alert)
    ctx, _ = opened(failing)
    failing.on_rows(txns((1, 0, 0)), 0)
    with pytest.raises(UserCodeError, match=r"operator 'probe' failed on timer 'tick' at 7: ValueError: no"):
        advance(failing, ctx, 8)
    with pytest.raises(DivergenceError):
        failing.on_rows(txns((1, 1, 0)), 0)


def test_values_with_a_ttl_are_the_default_again_after_it_and_leave_the_state() -> None:
    class Fading(Process[Txn, Audit]):
        count: int = state(0, ttl=10)
        items: list[int] = state([], ttl=10)

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


def test_in_order_a_ttl_is_measured_by_the_times_of_rows_however_far_the_watermark_jumps() -> None:
    class Fading(Process[Txn, Audit]):
        count: int = state(0, ttl=10)

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


def test_a_default_that_can_change_belongs_to_each_key_alone() -> None:
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

    count = ProcessOperator(Count, ("key",), None, (Audit,))
    _, out = opened(count)
    nan = float("nan")
    count.on_rows(pa.RecordBatch.from_pydict({"key": [0.0, -0.0, nan, -nan, None]}), 0)
    assert texts(out) == ["1", "2", "1", "2", "1"]


class Alarm(Process[Txn, Audit]):
    account: int | None = state(None)
    ring = processing_timer()

    def on_row(self, txn: Txn, ctx: Context) -> None:
        self.account = txn.account
        if txn.cents:
            self.ring.set(txn.cents)
        else:
            self.ring.clear()

    @ring.fires
    def rang(self, ctx: Context) -> Iterator[Audit]:
        yield Audit(f"{self.account} rang, {self.ring.at} to come")


def test_processing_timers_fire_when_the_engine_says_and_only_the_next_is_known_to_it() -> None:
    alarm = operator(Alarm, Audit)
    ctx, out = opened(alarm)
    alarm.on_rows(txns((1, 50, 0), (2, 30, 0), (3, 30, 0), (4, 20, 0), (4, 0, 0), (1, 40, 0)), 0)
    assert ctx.timers == {30}
    restored = operator(Alarm, Audit)
    ctx, out = opened(restored)
    restored.restore([stored(alarm.snapshot())])
    assert ctx.timers == {30}
    restored.on_timer(30)
    assert texts(out) == ["2 rang, None to come", "3 rang, None to come"]
    assert 40 in ctx.timers
    restored.on_timer(40)
    assert texts(out)[2:] == ["1 rang, None to come"]


def test_a_timer_that_sets_itself_again_ends_with_the_input() -> None:
    class Beat(Process[Txn, Audit]):
        beat = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.beat.set(ctx.event_time + 10)

        @beat.fires
        def beats(self, ctx: Context) -> Audit:
            self.beat.set(ctx.event_time + 10)
            return Audit(str(ctx.event_time))

    beat = operator(Beat, Audit, in_order=True)
    ctx, out = opened(beat)
    beat.on_rows(txns((1, 1, 0), (2, 1, 25)), 0)
    advance(beat, ctx, MAX_TIME)
    assert texts(out) == ["10", "20", "30", "35"]


def test_a_snapshot_holds_only_the_keys_that_changed_and_forgets_those_that_are_empty() -> None:
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


def test_the_log_of_changes_is_written_anew_when_it_outgrows_the_state() -> None:
    story = operator(Story, Audit)
    opened(story)
    for time in range(40):
        story.on_rows(txns(*((key, 2, time) for key in range(100))), 0)
        chunks = story.snapshot().tables["keys"]
        assert sum(chunk.rows.num_rows for chunk in chunks) <= 2 * 100 + 1_024


@pytest.mark.parametrize("value", [object(), "text", 1.5, 2**70, Decimal(1)])
def test_a_value_that_is_not_as_declared_is_named_before_it_is_stored(value: Any) -> None:
    class Hoarder(Process[Txn, Alert]):
        thing: int | None = state(None)

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.thing = value

    hoarder = operator(Hoarder, Alert)
    opened(hoarder)
    hoarder.on_rows(txns((1, 1, 1)), 0)
    with pytest.raises(UserCodeError, match=r"Hoarder.thing holds .*, which cannot be stored as it is declared"):
        hoarder.snapshot()


def test_values_come_back_as_what_they_were() -> None:
    told: list[Any] = []

    class Keeper(Process[Txn, Alert]):
        row: Txn | None = state(None)
        amounts: MapState[str, Decimal] = map_state()
        sum = state(Decimal(0))
        pair: tuple[int, str] = state((0, ""))
        raw: bytes = state(b"")

        def on_row(self, txn: Txn, ctx: Context) -> None:
            told.append((self.row, dict(self.amounts), self.sum, self.pair, self.raw))
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
    assert told[1] == told[2] == (Txn(1, 7, 3), {"a": Decimal("1.50")}, Decimal("1.50"), (7, "x"), b"\xff")
    assert repr(told[1]) == repr(told[2])


def test_a_checkpoint_of_another_type_is_named() -> None:
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


def test_rows_of_one_time_keep_the_order_of_arrival_whatever_is_taken_and_stored_between() -> None:
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


# The same history gives the same results, whatever happens in between.

Step = list[tuple[int, int, int]] | int
rows_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 60)), max_size=6)
histories = st.lists(rows_of | st.integers(0, 70), max_size=12)


def feed(running: list[tuple[Operator, ScriptedContext]], rows: pa.RecordBatch) -> None:
    groups = key_groups(rows, ["account"], 128)
    for process, ctx in running:
        mine = np.flatnonzero((groups >= ctx.groups.start) & (groups < ctx.groups.stop))
        if len(mine):
            process.on_rows(rows.take(mine), 0)


def play(history: list[Step], in_order: bool, restarts: dict[int, int]) -> list[list[str]]:
    """What each account's story was, with the job restarted at the steps in ``restarts`` at another parallelism."""
    watermark = -1
    parts: list[OperatorState] = []
    outs: list[Collected] = []
    running: list[tuple[Operator, ScriptedContext]] = []
    for number, step in enumerate([*history, MAX_TIME]):
        if number == 0 or number in restarts:
            parts = [stored(process.snapshot()) for process, _ in running]
            cuts = np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()
            running = []
            for low, high in itertools.pairwise(cuts):
                story = operator(Story, Audit, in_order=in_order)
                ctx, out = opened(story, ScriptedContext(range(low, high)))
                ctx.watermark = watermark
                story.restore(parts)
                running.append((story, ctx))
                outs.append(out)
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                for process, ctx in running:
                    advance(process, ctx, watermark)
        else:
            feed(running, txns(*step))
    told = [text for out in outs for text in texts(out)]
    return [[text for text in told if text.startswith(f"{account}: ")] for account in range(5)] + [sorted(told)]


@given(histories, st.booleans(), st.dictionaries(st.integers(1, 12), st.integers(1, 3), max_size=3))
def test_restarts_at_any_parallelism_change_nothing(
    history: list[Step], in_order: bool, restarts: dict[int, int]
) -> None:
    assert play(history, in_order, restarts) == play(history, in_order, {})


@given(rows_of, st.data())
def test_with_in_order_the_arrival_of_rows_of_different_times_does_not_matter(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    distinct = list({time: (account, cents, time) for account, cents, time in rows}.values())
    shuffled = data.draw(st.permutations(distinct))
    assert play([shuffled], True, {}) == play([sorted(distinct, key=lambda row: row[2])], True, {})
