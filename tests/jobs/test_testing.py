"""``testing.run`` shows results that depend on the arrival of rows: late rows, and each change of a table."""

from __future__ import annotations

import pytest

from clonos_py import Instant, Job, Record, at, col, count, testing, tumbling
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
