"""``testing.run`` shows results that depend on the arrival of rows: late rows, and each change of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import (
    AsyncContext,
    Context,
    Instant,
    Job,
    Process,
    Record,
    ServiceError,
    UserCodeError,
    at,
    col,
    count,
    processing_timer,
    service,
    state,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource, UpsertMemorySink
from clonos_py.model.errors import GraphError
from tests.jobs.rows import both_parallelisms, values


class Sale(Record):
    product: str
    amount: int
    at: Instant


class Total(Record):
    product: str
    total: int


class Window(Record):
    product: str
    window_end: Instant
    total: int


SALES = [Sale("a", 2, at("1s")), Sale("a", 3, at("15s")), Sale("a", 10, at("5s")), Sale("b", 1, at("16s"))]

REST = [Window("a", at("20s"), 3), Window("b", at("20s"), 1)]


def windows() -> Job:
    job = Job("windows")
    sales = job.source(MemorySource([], schema=Sale), event_time="at").named("sales")
    found, late = (
        sales.key_by("product").window(tumbling("10s")).aggregate(Window, total=col("amount").sum()).with_late()
    )
    found.sink(MemorySink()).named("windows")
    late.sink(MemorySink()).named("late")
    return job


@both_parallelisms
def test_a_row_behind_its_watermark_is_late(parallelism: int) -> None:
    out = testing.run(windows(), {"sales": SALES}, kills=2, seeds=4, parallelism=parallelism)
    assert values(out["windows"]) == values([Window("a", at("10s"), 2), *REST])
    assert out["late"] == [SALES[2]]


def test_the_same_rows_are_late_if_they_are_given_together() -> None:
    out = testing.run(windows(), {"sales": [SALES[:3], SALES[3]]})
    assert values(out["windows"]) == values([Window("a", at("10s"), 2), *REST])
    assert out["late"] == [SALES[2]], "a row is late by the rows before it, also by those of the same read"


def totals(upserts: bool) -> Job:
    job = Job("totals")
    sales = job.source(MemorySource([], schema=Sale)).named("sales")
    table = sales.key_by("product").aggregate(Total, total=col("amount").sum())
    (table.sink(UpsertMemorySink("product")) if upserts else table.changes().sink(MemorySink())).named("totals")
    return job


@pytest.mark.parametrize("upserts", [False, True])
def test_each_change_of_a_table_is_returned(upserts: bool) -> None:
    out = testing.run(totals(upserts), {"sales": SALES}, kills=1, seeds=4)
    assert out["totals"] == [Total("a", 2), Total("a", 5), Total("a", 15), Total("b", 1)]
    together = testing.run(totals(upserts), {"sales": [SALES[0], SALES[1:]]})
    assert together["totals"] == [Total("a", 2), Total("a", 15), Total("b", 1)]


def test_changes_of_a_table_that_loses_rows_have_their_kind() -> None:
    job = Job("frequencies")
    sales = job.source(MemorySource([], schema=Sale)).named("sales")
    counts = sales.key_by("product").aggregate(n=count()).named("counts")
    counts.key_by("n").aggregate(products=count()).sink(UpsertMemorySink("n")).named("frequencies")
    out = testing.run(job, {"sales": SALES}, kills=1, seeds=4)
    assert [(row._change, row.n, row.products) for row in out["frequencies"]] == [
        ("insert", 1, 1), ("delete", 1, 1), ("insert", 2, 1), ("delete", 2, 1), ("insert", 3, 1), ("insert", 1, 1),
    ]  # fmt: skip


def test_a_function_that_returns_a_job_must_be_called() -> None:
    def nightly() -> Job:
        return Job("nightly")

    with pytest.raises(GraphError, match=r"nightly is a function; call it: run\(module.nightly\(\), ...\)"):
        testing.run(nightly, {})  # type: ignore[arg-type]


class Asked(Record):
    product: str
    at: int
    number: float
    die: int
    text: str
    owner: str


@service
def owners() -> Iterator[Callable[[str], str]]:
    yield lambda product: f"owner of {product}"


def asked(row: Sale, ctx: Context) -> Asked:
    number, die = ctx.random.random() + ctx.random.gauss(10, 2), ctx.random.randint(1, 6)
    try:
        text = ctx.http.get("http://localhost:1/nobody").text
    except ServiceError as problem:
        text = str(problem)
    return Asked(row.product, ctx.time.now(), number, die, text, ctx.call(owners, row.product))


async def awaited(row: Sale, ctx: AsyncContext) -> Asked:
    response = await ctx.http.get("http://localhost:1/nobody")
    return Asked(row.product, ctx.time.now(), 0.0, response.status, response.text, await ctx.call(owners, row.product))


def questions(function: Any) -> Job:
    job = Job("questions")
    sales = job.source(MemorySource([], schema=Sale)).named("sales")
    sales.map(function).named("asked").sink(MemorySink()).named("answers")
    sales.select("product").sink(MemorySink()).named("products")
    return job


def test_functions_get_the_given_times_random_numbers_and_answers_in_order() -> None:
    out = testing.run(
        questions(asked),
        {"sales": SALES[:2]},
        seeds=3,
        times={"asked": [at("1s"), at("2s"), at("3s")]},
        draws={"asked": [0.25, 0.5, 7, 2, 0.5, -1.0, 0]},
        answers={"asked": [testing.http_answer("yes"), "anna", ServiceError("nobody there"), "bert"]},
    )
    assert out["answers"] == [
        Asked("a", at("1s"), 11.25, 3, "yes", "anna"),
        Asked("a", at("2s"), 8.5, 1, "nobody there", "bert"),
    ]


def test_asynchronous_functions_get_given_answers_in_the_order_of_their_calls() -> None:
    answers = [testing.http_answer(json={"rate": 2}, status=201), "anna"]
    given: Any = {"times": {"asked": [7]}, "answers": {"asked": answers}}
    out = testing.run(questions(awaited), {"sales": SALES[:1]}, **given)
    assert out["answers"] == [Asked("a", 7, 0.0, 201, '{"rate":2}', "anna")]


class Sold(Record):
    product: str
    amount: int
    late: bool


class Quiet(Process[Sale, Sold]):
    """Sums up sales, until a minute has passed without any."""

    total: int = state(0)
    silence = processing_timer()

    def on_row(self, row: Sale, ctx: Context) -> None:
        self.total += row.amount
        self.silence.set(ctx.time.now() + at("1m"))

    @silence.fires
    def falls_silent(self, ctx: Context) -> Sold:
        total, self.total = self.total, 0
        return Sold(ctx.key, total, ctx.time.now() > at("2m"))


def quiet() -> Job:
    job = Job("quiet")
    sales = job.source(MemorySource([], schema=Sale)).named("sales")
    sales.key_by("product").process(Quiet).named("quiet").sink(MemorySink()).named("sold")
    return job


@pytest.mark.parametrize(
    ("timers", "seconds", "sold"),
    [
        ([], [0, 0, 1, 120], []),
        ([(2, 30)], [0, 0, 1, 120], []),
        (
            [(1, 60), (3, 60), (4, 200)],
            [0, 60, 100, 101, 120, 240, 240],
            [("a", 2, False), ("a", 13, True), ("b", 1, True)],
        ),
        ([(3, 60), (3, 61), (4, 200)], [0, 0, 1, 62, 120, 240], [("a", 15, False), ("b", 1, True)]),
        ([(4, 180), (5, 1_000)], [0, 0, 1, 120, 180, 181], [("a", 15, True), ("b", 1, True)]),
    ],
)
def test_processing_timers_fire_where_the_test_says(
    timers: list[tuple[int, int]], seconds: list[int], sold: list[tuple[str, int, bool]]
) -> None:
    """The last timer of each is for more rows than there are, or fires at the end."""
    times = [at("1s") * second for second in seconds]
    given = [(rows, at("1s") * second) for rows, second in timers]
    out = testing.run(quiet(), {"sales": SALES}, seeds=2, times={"quiet": times}, timers={"quiet": given})
    assert [(row.product, row.amount, row.late) for row in out["sold"]] == sold


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"timers": {"quiet": [(1, "1m")]}},
            r"timers= of the test has \(1, '1m'\) for 'quiet': give pairs of the number",
        ),
        ({"timers": {"quiet": [(2, 0), (1, 0)]}}, "timers= of the test for 'quiet' are not in the order of the rows"),
        ({"timers": {"sold": []}}, "the test has answers for 'sold': the job has quiet"),
        ({"timers": {"quiet": []}, "parallelism": 2}, "are for one task without failures"),
    ],
)
def test_timers_that_cannot_fire_are_refused(given: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        testing.run(quiet(), {"sales": SALES}, **given)
    with pytest.raises(GraphError, match="timers for 'asked', which has no processing-time timers"):
        testing.run(questions(asked), {"sales": SALES[:1]}, timers={"asked": []})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": {"asked": []}}, "operator 'asked' asks once more than times= of the test has answers, which is 0"),
        (
            {"draws": {"asked": [1]}},
            r"calls random\(\) of random numbers, for which draws= of the test has 1, which is no",
        ),
    ],
)
def test_a_function_that_asks_for_more_than_is_given_fails(given: Any, message: str) -> None:
    answers = {"asked": [testing.http_answer(), "anna"]}
    with pytest.raises(UserCodeError, match=message):
        testing.run(questions(asked), {"sales": SALES[:1]}, answers=answers, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": {"askd": [1]}}, "the test has answers for 'askd': the job has asked"),
        ({"times": {"asked": [1]}, "kills": 1}, "are for one task without failures"),
        ({"times": {"asked": [1]}, "parallelism": 2}, "are for one task without failures"),
        ({"sinks": ["answer"]}, "has no single source or sink 'answer'"),
    ],
)
def test_answers_that_cannot_be_given_are_refused(given: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        testing.run(questions(asked), {"sales": SALES[:1]}, **given)


def test_a_run_can_be_of_some_sinks_only() -> None:
    out = testing.run(questions(asked), {"sales": SALES[:1]}, sinks=["products"], kills=1, seeds=3)
    assert out.keys() == {"products"}
    assert [row.product for row in out["products"]] == ["a"]
