"""Lookups: each unknown key is asked once, all else comes from the cache, whatever is cut, restarted or moved."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.calls import LookUpOptions, Waiting
from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.model.joins import JoinType
from clonos_py.model.record import DeadLetter, Record
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.lookup import LookUp
from clonos_py.services.async_context import AsyncContext
from clonos_py.services.definition import service
from tests.unit.operators.scripted import (
    Collected,
    ScriptedContext,
    advance,
    compacted_early,
    opened,
    read_by,
    schema,
    stored,
)

LIFETIME_US = 100
ROWS = schema(("key", pa.float64()), ("n", pa.int64()))
NAN = float("nan")
KEYS = [0.0, -0.0, 1.5, 2.5, NAN, None]
HOWS = [JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI]


class Quote(Record):
    key: float
    price: int


@service
def oracle() -> Iterator[Callable[[float], int | None]]:
    yield lambda key: 7


async def quote(key: float, ctx: AsyncContext) -> Quote | None:
    price = await ctx.call(oracle, key)
    return None if price is None else Quote(key, price)


def looking_up(
    how: JoinType = JoinType.INNER,
    ordered: bool = True,
    fn: Callable[..., Any] = quote,
    on_error: Literal["fail", "catch"] = "fail",
    concurrency: int = 1_000,
    timeout_us: int | None = None,
    **options: Any,
) -> LookUp:
    columns, result = [("key", 0, "key"), ("n", 0, "n")], ROWS
    if how.pairs:
        columns, result = [*columns, ("price", 1, "price")], ROWS.append(pa.field("price", pa.int64()))
    waiting = Waiting(concurrency, ordered, timeout_us)
    asking = LookUpOptions(waiting, LIFETIME_US, **options)
    return LookUp(["key"], fn, True, Quote.schema(), tuple(columns), result, asking, how, on_error)


def batch(keys: Sequence[float | None], first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + len(keys))
    return pa.record_batch([pa.array(keys, pa.float64()), pa.array(numbers, pa.int64())], schema=ROWS)


def answer(operator: LookUp, ctx: ScriptedContext, number: int, value: Any, error: str | None = None) -> None:
    ctx.cancel_call(number)
    operator.on_answer(number, value, error)


def asked(ctx: ScriptedContext) -> list[float]:
    return [question[0][0] for _, question in ctx.calls.values()]


def found(out: Collected) -> list[tuple[int, Any]]:
    return [(row["n"], row.get("price")) for row in out.take()]


# ---- a model in plain Python


WAITS, LOST = object(), object()


@dataclass
class Entry:
    number: int
    value: Any


@dataclass
class Model:
    """What a lookup gives, row by row."""

    how: JoinType
    ordered: bool
    now_us: int = 1_000
    cache: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    open: dict[Any, list[Entry]] = field(default_factory=dict)
    left: list[Entry] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    watermark: int = MIN_TIME

    def row(self, key: float | None, number: int) -> None:
        if key is None and not self.how.unmatched[0]:
            return
        same = "nan" if key is not None and math.isnan(key) else key
        value, expires_us = (None, self.now_us + 1) if key is None else self.cache.get(same, (None, 0))
        entry = Entry(number, value if expires_us > self.now_us else WAITS)
        self.left.append(entry)
        if entry.value is WAITS:
            if same not in self.open:
                self.asked.append(same)
            self.open.setdefault(same, []).append(entry)

    def answer(self, key: Any, value: Any) -> None:
        for entry in self.open.pop(key):
            entry.value = value
        if value is not LOST:
            self.cache[key] = value, self.now_us + LIFETIME_US

    def emitted(self) -> list[tuple[int, Any]]:
        due = []
        for entry in list(self.left):
            if entry.value is WAITS:
                if self.ordered:
                    break
                continue
            self.left.remove(entry)
            due.append(entry)
        kept = [entry for entry in due if entry.value is not LOST]
        match self.how:
            case JoinType.INNER:
                return [(entry.number, entry.value) for entry in kept if entry.value is not None]
            case JoinType.LEFT:
                return [(entry.number, entry.value) for entry in kept]
            case _:
                with_answer = self.how is JoinType.SEMI
                return [(entry.number, None) for entry in kept if (entry.value is not None) == with_answer]

    def released(self, next_row: int) -> int:
        first = min((entry.number for entry in self.left), default=next_row)
        while self.marks and self.marks[0][0] <= first:
            self.watermark = self.marks.popleft()[1]
        return self.watermark


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.sampled_from(KEYS), max_size=6)),
        st.tuples(st.just("answer"), st.integers(0, 5), st.sampled_from([1, 2, None, LOST])),
        st.tuples(st.just("time"), st.integers(0, LIFETIME_US)),
        st.tuples(st.just("watermark"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS, st.sampled_from(HOWS), st.booleans())
def test_it_gives_what_a_model_gives_at_each_event(steps: list[Any], how: JoinType, ordered: bool) -> None:
    with compacted_early():
        check(steps, how, ordered)


def check(steps: list[Any], how: JoinType, ordered: bool) -> None:
    model, operator = Model(how, ordered), looking_up(how, ordered, on_error="catch")
    ctx, out = opened(operator)
    rows = letters = watermark = 0
    for step, *what in steps:
        match step:
            case "rows":
                operator.on_rows(batch(what[0], rows), 0)
                for key in what[0]:
                    model.row(key, rows)
                    rows += 1
            case "answer" if ctx.calls:
                number = sorted(ctx.calls)[what[0] % len(ctx.calls)]
                key = ctx.calls[number][1][0][0]
                same = "nan" if math.isnan(key) else key
                letters += len(model.open[same]) if what[1] is LOST else 0
                model.answer(same, what[1])
                answer(operator, ctx, number, None if what[1] is LOST else what[1], "lost" if what[1] is LOST else None)
            case "time":
                model.now_us += what[0]
                ctx.time.wall_us += what[0]
            case "watermark":
                watermark += 10
                model.marks.append((rows, watermark))
                advance(operator, ctx, watermark)
            case "restart":
                before, operator = (operator, ctx), looking_up(how, ordered, on_error="catch")
                ctx, _ = opened(operator, ScriptedContext())
                operator.out = out
                ctx.time.wall_us, ctx.watermark = before[1].time.wall_us, before[1].watermark
                operator.restore([stored(before[0].snapshot())])
                assert ctx.calls == before[1].calls or any(key != key for key in asked(ctx))
                model.watermark = MIN_TIME
        assert found(out) == model.emitted()
        assert Counter("nan" if key != key else key for key in asked(ctx)) == Counter(model.open.keys())
        assert max(operator.released(), MIN_TIME) == model.released(rows)
        assert ctx.holds[0] == bool(model.left)
    assert len(out.rows(1)) == letters


@given(STEPS, st.integers(1, 3))
def test_the_rows_of_a_key_go_on_with_their_answers_at_another_parallelism(steps: list[Any], instances: int) -> None:
    """Whatever has been asked is asked by one instance, and the answer settles all rows that waited for it."""
    operator = looking_up(JoinType.LEFT)
    ctx, out = opened(operator)
    rows, expected = 0, dict[int, Any]()
    for step, *what in steps:
        if step == "rows":
            operator.on_rows(batch(what[0], rows), 0)
            expected |= {rows + at: None if key is None else 10 * key for at, key in enumerate(what[0]) if key == key}
            expected |= {rows + at: 77 for at, key in enumerate(what[0]) if key is not None and key != key}
            rows += len(what[0])
        elif step == "answer" and ctx.calls:
            settle(operator, ctx, sorted(ctx.calls)[what[0] % len(ctx.calls)])
    parts, questions = [stored(operator.snapshot())], Counter(map(repr, asked(ctx)))
    outs = [out]
    for count in (instances, 4 - instances):
        running = []
        for number in range(count):
            operator = looking_up(JoinType.LEFT)
            ctx, out = opened(operator, ScriptedContext(range(128 * number // count, 128 * (number + 1) // count)))
            operator.restore(read_by(parts, ctx.groups))
            running.append((operator, ctx))
            outs.append(out)
        assert sum((Counter(map(repr, asked(ctx))) for _, ctx in running), Counter()) == questions
        parts = [stored(operator.snapshot()) for operator, _ in running]
    for operator, ctx in running:
        for at in sorted(ctx.timers):
            operator.on_timer(at)
        while ctx.calls:
            settle(operator, ctx, min(ctx.calls))
        assert ctx.holds == (False, False)
    emitted = [row for out in outs for row in found(out)]
    assert len(emitted) == len(dict(emitted)) == rows
    assert dict(emitted) == expected


def settle(operator: LookUp, ctx: ScriptedContext, number: int) -> None:
    (key,) = ctx.calls[number][1][0]
    answer(operator, ctx, number, 77 if key != key else int(10 * key))


# ---- single behaviours


def test_a_missing_answer_is_cached_until_it_expires() -> None:
    operator = looking_up(JoinType.LEFT)
    ctx, out = opened(operator)
    operator.on_rows(batch([1.5, 1.5]), 0)
    answer(operator, ctx, 0, None)
    ctx.time.wall_us += LIFETIME_US - 1
    operator.on_rows(batch([1.5], 2), 0)
    assert found(out) == [(0, None), (1, None), (2, None)]
    ctx.time.wall_us += 1
    operator.on_rows(batch([1.5], 3), 0)
    assert asked(ctx) == [1.5]


def test_rows_with_a_cached_answer_wait_for_those_before_them() -> None:
    operator = looking_up()
    ctx, out = opened(operator)
    operator.on_rows(batch([1.5, 2.5]), 0)
    answer(operator, ctx, 1, 25)
    operator.on_rows(batch([2.5, 1.5, 2.5], 2), 0)
    assert found(out) == []
    answer(operator, ctx, 0, 15)
    assert found(out) == [(0, 15), (1, 25), (2, 25), (3, 15), (4, 25)]


def test_a_failed_key_ends_the_job_or_gives_a_letter_for_each_of_its_rows() -> None:
    operator = looking_up()
    ctx, _ = opened(operator)
    operator.on_rows(batch([1.5]), 0)
    with pytest.raises(UserCodeError, match=r'operator \'probe\' failed on record \{"key":1.5,"n":0\}: lost'):
        answer(operator, ctx, 0, None, "lost")
    operator = looking_up(on_error="catch")
    ctx, out = opened(operator)
    ctx.frame = (3, 9)
    operator.on_rows(batch([None, 1.5, 2.5, 1.5]), 0)
    answer(operator, ctx, 0, None, "lost")
    answer(operator, ctx, 1, 25)
    assert found(out) == [(2, 25)]
    letters = [DeadLetter(**row) for row in out.rows(1)]
    assert [(letter.channel, letter.sequence, letter.row) for letter in letters] == [(3, 9, 1), (3, 9, 3)]
    operator.on_rows(batch([1.5], 4), 0)
    assert asked(ctx) == [1.5], "a failure is not cached"


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (7, "7 is neither a Record nor a dict"),
        ([Quote(1.5, 2)], "it returns a list where one row is declared"),
        ({"key": 1.5, "price": "much"}, "field 'price' is 'much'"),
        ({"key": 1.5}, "dict has no field 'price'"),
    ],
)
def test_an_answer_of_another_type_is_a_failure(result: Any, problem: str) -> None:
    async def other(key: float, ctx: AsyncContext) -> Any:
        return result

    operator = looking_up(fn=other, on_error="catch")
    _, out = opened(operator)
    operator.on_rows(batch([1.5]), 0)
    assert found(out) == []
    assert problem in out.rows(1)[0]["error"]


def test_a_key_that_python_does_not_have_is_a_failure() -> None:
    async def priced(key: datetime, ctx: AsyncContext) -> Quote:
        price = await ctx.call(oracle, 0.0)
        return Quote(0.0, price or 0)

    kind = pa.timestamp("us", "UTC")
    rows = pa.schema([("key", kind), ("n", pa.int64())])
    waiting = LookUpOptions(Waiting(10, True, None), LIFETIME_US)
    columns = (("n", 0, "n"), ("price", 1, "price"))
    result = pa.schema([("n", pa.int64()), ("price", pa.int64())])
    operator = LookUp(["key"], priced, True, Quote.schema(), columns, result, waiting, on_error="catch")
    ctx, out = opened(operator)
    year_10000 = pa.array([253402300800000000, 5, 253402300800000000], kind)
    operator.on_rows(pa.record_batch([year_10000, pa.array([1, 2, 3])], schema=rows), 0)
    answer(operator, ctx, next(iter(ctx.calls)), 9)
    assert (found(out), len(out.rows(1))) == ([(2, 9)], 2)


def test_a_question_is_asked_again_after_a_service_error_and_only_then() -> None:
    operator = looking_up(retries=2)
    ctx, out = opened(operator)
    operator.on_rows(batch([1.5]), 0)
    for wait_us in (100_000, 200_000):
        answer(operator, ctx, 0, None, "down")
        assert ctx.timers == {ctx.time.wall_us + wait_us}
        ctx.time.wall_us += wait_us
        operator.on_timer(ctx.timers.pop())
    answer(operator, ctx, 0, 15)
    assert found(out) == [(0, 15)]

    async def broken(key: float, ctx: AsyncContext) -> Quote:
        raise ValueError("broken")

    operator = looking_up(fn=broken, retries=2)
    opened(operator)
    with pytest.raises(UserCodeError, match="broken"):
        operator.on_rows(batch([1.5]), 0)


def test_a_question_that_takes_too_long_fails() -> None:
    operator = looking_up(on_error="catch", timeout_us=500)
    ctx, out = opened(operator)
    operator.on_rows(batch([1.5]), 0)
    operator.on_timer(ctx.timers.pop())
    assert "not done within" in out.rows(1)[0]["error"]
    assert (ctx.calls, ctx.holds) == ({}, (False, False))


def test_the_rate_limits_how_many_calls_begin_also_after_a_restart() -> None:
    operator = looking_up(rate=2)
    ctx, _ = opened(operator)
    operator.on_rows(batch([1.0, 2.0, 3.0, 4.0, 5.0]), 0)
    begun = []
    for _ in range(5):
        begun.append((ctx.time.wall_us, sorted(asked(ctx))))
        for number in list(ctx.calls):
            answer(operator, ctx, number, 1)
        if not ctx.timers:
            break
        before, operator = operator, looking_up(rate=2)
        timers, wall_us = ctx.timers, ctx.time.wall_us
        ctx, _ = opened(operator)
        ctx.time.wall_us = wall_us
        operator.restore([stored(before.snapshot())])
        assert ctx.timers == timers
        operator.on_rows(batch([len(begun) + 6.0]), 0)
        assert (asked(ctx), ctx.timers) == ([], timers)
        ctx.time.wall_us = ctx.timers.pop()
        operator.on_timer(ctx.time.wall_us)
    assert [keys for _, keys in begun] == [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0], [8.0, 9.0]]
    assert [at for at, _ in begun] == [1_000, 1_001_000, 2_001_000, 3_001_000]


def test_the_task_takes_no_further_rows_while_as_many_keys_are_asked_for_as_may_be() -> None:
    operator = looking_up(concurrency=2)
    ctx, out = opened(operator)
    operator.on_rows(batch([1.0, 1.0]), 0)
    assert ctx.holds == (True, False)
    operator.on_rows(batch([2.0, 3.0], 2), 0)
    assert (asked(ctx), ctx.holds) == ([1.0, 2.0], (True, True))
    for number in range(3):
        answer(operator, ctx, number, 1)
    assert (found(out), ctx.holds) == ([(0, 1), (1, 1), (2, 1), (3, 1)], (False, False))


def test_a_replay_asks_nothing_that_is_in_the_snapshot() -> None:
    async def twice(key: float, ctx: AsyncContext) -> Quote:
        price = await ctx.call(oracle, key)
        try:
            more = await ctx.call(oracle, -key)
            return Quote(key, (price or 0) + (more or 0))
        except ServiceError:
            return Quote(key, 0)

    operator = looking_up(fn=twice)
    ctx, _ = opened(operator)
    operator.on_rows(batch([1.5, 2.5]), 0)
    answer(operator, ctx, 0, 10)
    after = looking_up(fn=twice)
    later, out = opened(after)
    after.restore([stored(operator.snapshot())])
    assert (sorted(asked(later)), later.gate.log) == ([-1.5, 2.5], [])
    for number in (0, 1, 1):
        answer(after, later, number, 5)
    assert found(out) == [(0, 15), (1, 10)]
