"""Asynchronous functions: many rows at work, resumed by answers and timers only, and begun again after a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest

from clonos_py.model.calls import Waiting
from clonos_py.model.errors import DivergenceError, UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.record import Record
from clonos_py.model.record_codec import encode
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.rows import Kind
from clonos_py.services.async_context import AsyncContext
from clonos_py.services.definition import service
from clonos_py.services.http import HTTP, IDEMPOTENCY_KEY
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, stored


class Number(Record):
    id: int


class Told(Record):
    id: int
    answer: int


@service
def oracle() -> Iterator[Callable[..., int]]:
    yield lambda *args, **kwargs: 7


async def ask(row: Number, ctx: AsyncContext) -> Told:
    return Told(row.id, await ctx.call(oracle, row.id))


async def ask_twice(row: Number, ctx: AsyncContext) -> Told:
    first = await ctx.call(oracle, row.id)
    if first < 0:
        raise ValueError("negative")
    return Told(row.id, first * 100 + await ctx.call(oracle, row.id, again=True))


def numbers(*ids: int) -> pa.RecordBatch:
    return encode([Number(i) for i in ids], Number.schema())


def asking(
    fn: Callable[..., Any],
    concurrency: int = 10,
    ordered: bool = True,
    timeout_us: int | None = None,
    kind: Kind = "map",
    on_error: Literal["fail", "catch"] = "fail",
    shape: type[Record] = Told,
) -> MapAsyncRows:
    waiting = Waiting(concurrency, ordered, timeout_us)
    return MapAsyncRows(fn, Number, shape.schema(), kind, True, waiting, on_error)


def answer(operator: MapAsyncRows, ctx: ScriptedContext, number: int, value: Any, error: str | None = None) -> None:
    """What the task does with a completion."""
    ctx.cancel_call(number)
    operator.on_answer(number, value, error)


def answers(out: Collected) -> list[tuple[int, int]]:
    return [(row["id"], row["answer"]) for row in out.take()]


def test_rows_wait_concurrently_and_leave_in_their_order() -> None:
    operator = asking(ask)
    ctx, out = opened(operator)
    operator.on_rows(numbers(10, 11, 12), 0)
    assert ctx.calls == {i: (oracle.name, ((10 + i,), {})) for i in range(3)}
    answer(operator, ctx, 2, 5)
    answer(operator, ctx, 1, 6)
    assert answers(out) == []
    answer(operator, ctx, 0, 7)
    assert answers(out) == [(10, 7), (11, 6), (12, 5)]
    assert ctx.holds == (False, False)


def test_observers_see_the_rows_that_are_not_finished() -> None:
    operator = asking(ask, concurrency=2)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(5, 6, 7), 0)
    assert operator.unfinished == [0, 1, 2]
    rows, position = operator.row_of(2)
    assert rows.column("id")[position].as_py() == 7
    answer(operator, ctx, 1, 1)
    assert operator.unfinished == [0, 2]


def test_unordered_rows_leave_as_soon_as_they_are_done() -> None:
    operator = asking(ask, ordered=False)
    ctx, out = opened(operator)
    operator.on_rows(numbers(10, 11), 0)
    answer(operator, ctx, 1, 6)
    assert answers(out) == [(11, 6)]
    answer(operator, ctx, 0, 7)
    assert answers(out) == [(10, 7)]


def test_the_task_is_held_back_when_the_concurrency_is_reached() -> None:
    operator = asking(ask, concurrency=2)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(0), 0)
    assert ctx.holds == (True, False)
    operator.on_rows(numbers(1, 2, 3), 0)
    assert sorted(ctx.calls) == [0, 1]
    assert ctx.holds == (True, True)
    answer(operator, ctx, 1, 5)
    assert sorted(ctx.calls) == [0, 2]


def test_an_async_generator_gives_any_number_of_rows_and_async_filters_keep_rows() -> None:
    async def several(row: Number, ctx: AsyncContext) -> AsyncIterator[Told]:
        for _ in range(2):
            yield Told(row.id, await ctx.call(oracle))

    operator = asking(several, kind="flat_map")
    ctx, out = opened(operator)
    operator.on_rows(numbers(1), 0)
    answer(operator, ctx, 0, 5)
    answer(operator, ctx, 0, 6)
    assert answers(out) == [(1, 5), (1, 6)]

    async def predicate(row: Number, ctx: AsyncContext) -> bool:
        return await ctx.call(oracle) > 0

    operator = asking(predicate, kind="filter", shape=Number)
    ctx, out = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 0, 0)
    answer(operator, ctx, 1, 1)
    assert out.take() == [{"id": 2}]


def test_a_service_error_is_raised_at_the_await() -> None:
    async def forgiving(row: Number, ctx: AsyncContext) -> Told:
        try:
            return Told(row.id, await ctx.call(oracle))
        except Exception as error:  # noqa: BLE001 - whatever it is
            return Told(row.id, len(str(error)))

    operator = asking(forgiving)
    ctx, out = opened(operator)
    operator.on_rows(numbers(1), 0)
    answer(operator, ctx, 0, None, "four")
    assert answers(out) == [(1, 4)]


def test_sleeping_sets_a_timer() -> None:
    async def patient(row: Number, ctx: AsyncContext) -> Told:
        await ctx.sleep("2ms")
        return Told(row.id, ctx.time.now())

    operator = asking(patient)
    ctx, out = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    assert ctx.timers == {3_000}
    ctx.timers.clear()
    ctx.time.wall_us = 3_001
    operator.on_timer(3_000)
    assert answers(out) == [(1, 3_001), (2, 3_001)]


def test_a_row_that_exceeds_its_timeout_fails_and_its_answer_is_ignored() -> None:
    operator = asking(ask, timeout_us=500, on_error="catch")
    ctx, out = opened(operator)
    ctx.frame = (2, 9)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 1, 6)
    ctx.timers.clear()
    ctx.frame = (-1, 4)
    operator.on_timer(1_500)
    assert answers(out) == [(2, 6)]
    assert ctx.calls == {}
    letter = out.take(1)[0]
    assert (letter["error"], letter["channel"], letter["sequence"], letter["row"]) == (
        "not done within 0.0005 s",
        2,
        9,
        0,
    )
    assert ctx.holds == (False, False)


def test_a_row_that_is_done_has_no_timer() -> None:
    operator = asking(ask, timeout_us=500)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 0, 1)
    assert ctx.timers == {1_500}
    answer(operator, ctx, 1, 1)
    assert ctx.timers == set()


def test_a_failing_row_is_a_dead_letter_and_others_continue_if_failures_are_caught() -> None:
    operator = asking(ask_twice, on_error="catch")
    ctx, out = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 0, -1)
    answer(operator, ctx, 1, 3)
    answer(operator, ctx, 1, 4)
    assert answers(out) == [(2, 304)]
    assert out.take(1)[0]["error"] == "ValueError: negative"
    operator = asking(ask_twice)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1), 0)
    with pytest.raises(
        UserCodeError, match=r"'probe' failed on record \{\"id\":1\}: ValueError: negative; .* in ask_twice"
    ):
        answer(operator, ctx, 0, -1)


def test_a_result_that_does_not_fit_fails_only_its_row() -> None:
    async def odd(row: Number, ctx: AsyncContext) -> Any:
        return {"id": row.id, "answer": await ctx.call(oracle)}

    operator = asking(odd, on_error="catch")
    ctx, out = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 1, 5)
    answer(operator, ctx, 0, "much")
    assert answers(out) == [(2, 5)]
    assert "'answer'" in out.take(1)[0]["error"]


def test_a_list_where_one_row_is_declared_is_named_with_its_remedy() -> None:
    async def several(row: Number, ctx: AsyncContext) -> Any:
        return [Told(row.id, await ctx.call(oracle))]

    operator = asking(several)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1), 0)
    with pytest.raises(UserCodeError, match=r"it returns a list where one row is declared: .* `-> Iterator\[Told\]`"):
        answer(operator, ctx, 0, 5)


@pytest.mark.parametrize("wait", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(1), lambda: asyncio.Event().wait()])
def test_awaiting_anything_but_ctx_is_an_error_with_the_remedy(wait: Callable[[], Any]) -> None:
    async def foreign(row: Number, ctx: AsyncContext) -> Told:
        await wait()
        return Told(row.id, 0)

    operator = asking(foreign)
    opened(operator)
    with pytest.raises(UserCodeError, match=r"may await ctx\.http, ctx\.call and ctx\.sleep"):
        operator.on_rows(numbers(1), 0)


def test_a_watermark_waits_for_the_rows_before_it() -> None:
    operator = asking(ask, ordered=False)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1), 0)
    assert advance(operator, ctx, 100) == MIN_TIME
    operator.on_rows(numbers(2), 0)
    assert advance(operator, ctx, 200) == MIN_TIME
    answer(operator, ctx, 1, 5)
    assert operator.released() == MIN_TIME
    answer(operator, ctx, 0, 5)
    assert operator.released() == 200


def restored(
    operator: MapAsyncRows, fn: Callable[..., Any], **how: Any
) -> tuple[MapAsyncRows, ScriptedContext, Collected]:
    """Another instance that takes over the state."""
    after = asking(fn, **how)
    ctx, out = opened(after)
    ctx.watermark = 100
    after.restore([stored(operator.snapshot())])
    return after, ctx, out


async def everything(row: Number, ctx: AsyncContext) -> Told:
    seen, drawn = ctx.time.now(), ctx.random.getrandbits(16)
    first = await ctx.call(oracle, drawn)
    await ctx.sleep("1ms")
    return Told(row.id, seen + drawn + first + await ctx.call(oracle, drawn, seen=seen))


def test_a_restored_row_gets_its_logged_answers_and_repeats_only_its_open_question() -> None:
    operator = asking(everything)
    ctx, out = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    advance(operator, ctx, 100)
    answer(operator, ctx, 0, 40)
    operator.on_timer(2_000)
    after, later, found = restored(operator, everything)
    assert later.calls == ctx.calls
    assert later.gate.log == [], "no question whose answer is in the snapshot was repeated"
    for which, context in ((operator, ctx), (after, later)):
        answer(which, context, 0, 50)
        answer(which, context, 1, 60)
        which.on_timer(2_000)
        answer(which, context, 1, 70)
    assert answers(found) == answers(out) != []
    assert after.released() == 100


def test_a_row_that_is_done_and_waits_for_its_turn_is_not_called_again_after_a_restore() -> None:
    operator = asking(ask)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    answer(operator, ctx, 1, 5)
    after, later, out = restored(operator, ask)
    assert sorted(later.calls) == [0]
    answer(after, later, 0, 4)
    assert answers(out) == [(1, 4), (2, 5)]


def test_rows_that_had_not_begun_begin_after_a_restore_when_there_is_room() -> None:
    operator = asking(ask, concurrency=1)
    opened(operator)
    operator.on_rows(numbers(1, 2), 0)
    after, later, out = restored(operator, ask, concurrency=1)
    assert (sorted(later.calls), later.holds) == ([0], (True, True))
    answer(after, later, 0, 4)
    answer(after, later, 1, 5)
    assert answers(out) == [(1, 4), (2, 5)]


def test_a_restored_function_with_other_awaits_is_an_error() -> None:
    times: list[int] = []

    async def fickle(row: Number, ctx: AsyncContext) -> Told:
        times.append(0)
        if len(times) < 2:
            await ctx.call(oracle)
        return Told(row.id, await ctx.call(oracle) if len(times) < 2 else 0)

    operator = asking(fickle)
    ctx, _ = opened(operator)
    operator.on_rows(numbers(1), 0)
    answer(operator, ctx, 0, 4)
    with pytest.raises(DivergenceError, match="clonos check"):
        restored(operator, fickle)


def test_after_a_change_of_parallelism_every_row_has_one_owner() -> None:
    befores = [asking(ask, concurrency=1) for _ in range(2)]
    for number, (operator, groups) in enumerate(zip(befores, (range(64), range(64, 128)), strict=True)):
        opened(operator, ScriptedContext(groups))
        operator.on_rows(numbers(*range(number * 3, number * 3 + 3)), 0)
    parts = [stored(operator.snapshot()) for operator in befores]
    found: list[int] = []
    for groups in (range(40), range(40, 90), range(90, 128)):
        after = asking(ask, concurrency=1)
        ctx, out = opened(after, ScriptedContext(groups))
        after.restore(read_by(parts, ctx.groups))
        if 0 in ctx.timers:
            after.on_timer(0)
        while ctx.calls:
            answer(after, ctx, next(iter(ctx.calls)), 1)
        found += [row for row, _ in answers(out)]
    assert sorted(found) == list(range(6))


def test_retries_are_calls_of_their_own_under_one_idempotency_key() -> None:
    async def fetch(row: Number, ctx: AsyncContext) -> Told:
        response = await ctx.http.get("http://x/", retries=2, backoff="100ms")
        return Told(row.id, response.status)

    operator = asking(fetch)
    ctx, out = opened(operator)
    ctx.frame = (3, 8)
    operator.on_rows(numbers(1), 0)
    keys, waits = [], []
    for outcome in (
        None,
        {"status": 503, "headers": {}, "content": b""},
        {"status": 200, "headers": {}, "content": b""},
    ):
        name, request = ctx.calls[0]
        assert name == HTTP
        keys.append(request.headers[IDEMPOTENCY_KEY])
        waits.append(request.after_us)
        answer(operator, ctx, 0, outcome, None if outcome else "refused")
    assert answers(out) == [(1, 200)]
    assert waits == [0, 100_000, 200_000]
    assert len(set(keys)) == 1
    assert keys[0].startswith("line-0/probe/0/3/8/0/1/")


def test_a_row_that_waits_across_a_change_of_parallelism_keeps_its_idempotency_keys() -> None:
    """Its request may have been answered already: the server must recognize it."""

    async def fetch(row: Number, ctx: AsyncContext) -> Told:
        return Told(row.id, (await ctx.http.get("http://x/")).status)

    before = asking(fetch)
    ctx, _ = opened(before, ScriptedContext(range(64)))
    before.on_rows(numbers(0, 1), 0)
    keys = {request.headers[IDEMPOTENCY_KEY] for _, request in ctx.calls.values()}
    after = asking(fetch)
    moved = ScriptedContext()
    moved.numbering, moved.task = "line-1", TaskId("vertex", 1)
    opened(after, moved)
    after.restore([stored(before.snapshot())])
    assert {request.headers[IDEMPOTENCY_KEY] for _, request in moved.calls.values()} == keys
    after.on_rows(numbers(0, 1), 0)
    news = [request.headers[IDEMPOTENCY_KEY] for number, (_, request) in moved.calls.items() if number > 1]
    assert [key.rsplit("/", 1)[0] for key in news] == ["line-1/probe/1/0/1/0/1", "line-1/probe/1/0/1/1/1"]
