"""The short pieces of code in the guide: what they give, also when tasks fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import (
    Context,
    DeadLetter,
    Instant,
    Job,
    Process,
    Record,
    UserAggregate,
    aggregate_by,
    apply,
    assign,
    at,
    col,
    count,
    counted,
    every,
    last,
    list_state,
    map_state,
    micros,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.dsl.streams import Stream
from tests.serving import served


class Order(Record):
    at: Instant
    customer: str
    product: str
    cents: int
    pieces: int = 1


def orders_of(job: Job, rows: list[Order]) -> Stream[Order]:
    return job.source(MemorySource(rows, schema=Order), event_time="at").named("orders")


# ---- aggregates


def tens_of(rows: list[Order]) -> Job:
    job = Job("tens")
    tens = orders_of(job, rows).key_by("product").window(counted(10, every=5, incomplete=True))
    tens.aggregate(orders=count(), cents=col("cents").sum()).sink(MemorySink()).named("tens")
    return job


def test_a_count_window_holds_a_number_of_rows() -> None:
    rows = [Order(at("1s"), "a", "green tea", cents) for cents in range(17)]
    found = testing.run(tens_of(rows), {"orders": rows}, kills=1)["tens"]
    windows = [range(10), range(5, 15), range(10, 17), range(15, 17)]
    assert [(row.orders, row.cents) for row in found] == [(len(window), sum(window)) for window in windows]


def hours_of(rows: list[Order]) -> Job:
    job = Job("hours")
    hours = orders_of(job, rows).key_by("product").window(tumbling("1h"), lateness="1d", emit=every("1m"))
    hours.aggregate(orders=count(), cents=col("cents").sum()).changes(kind="change").sink(MemorySink()).named("hours")
    return job


def test_results_of_a_window_come_before_it_closes() -> None:
    rows = [Order(at(f"{20 * number}s"), "a", "tea", 100) for number in range(7)]
    found = testing.run(hours_of(rows), {"orders": [rows[:2], rows[2:5], rows[5:]]}, kills=1)["hours"]
    assert [(row.change, row.orders) for row in found] == [("insert", 5), ("update", 7)]


class Basket(Record):
    window_end: Instant
    customer: str
    products: str


def baskets(orders: pl.DataFrame) -> pl.DataFrame:
    """The distinct products of a customer, in the order of the first piece of each."""
    products = orders["product"].unique(maintain_order=True)
    return orders.head(1).select("window_end", "customer", products=pl.lit(" ".join(products)))


def shifts(orders: pl.DataFrame) -> pl.DataFrame:
    """The shop's shifts of eight hours, the first of which begins at six."""
    six, eight_hours = micros("6h"), micros("8h")
    start = (pl.col("at") - six) // eight_hours * eight_hours + six
    return orders.select(window_start=start, window_end=start + eight_hours)


def by_shift(rows: list[Order]) -> Job:
    job = Job("shifts")
    orders = orders_of(job, rows)
    hours = orders.key_by("customer").window(tumbling("1h"))
    hours.map_groups(baskets, returns=Basket).sink(MemorySink()).named("baskets")
    orders.key_by("product").window(assign(shifts)).aggregate(orders=count()).sink(MemorySink()).named("shifts")
    return job


def test_windows_are_ones_own_and_functions_get_them_whole() -> None:
    rows = [
        Order(at(f"{hour}h"), "a", product, 100) for hour, product in ((5, "tea"), (6, "cup"), (13, "tea"), (14, "tea"))
    ]
    rows.append(Order(at("14h"), "a", "cup", 100))
    found = testing.run(by_shift(rows), {"orders": rows}, kills=1)
    assert [basket.products for basket in found["baskets"]] == ["tea", "cup", "tea", "tea cup"]
    ends = [(row.product, row.window_end // at("1h"), row.orders) for row in found["shifts"]]
    assert sorted(ends) == [("cup", 14, 1), ("cup", 22, 1), ("tea", 6, 1), ("tea", 14, 1), ("tea", 22, 1)]


class Scored(Record):
    at: Instant
    customer: str
    cents: int
    orders: int
    usual: float


def scored(rows: list[Order]) -> Job:
    job = Job("scored")
    orders = orders_of(job, rows).key_by("customer").over(last("1h")).aggregate(orders=count()).named("hour")
    tens = orders.key_by("customer").over(last(rows=10))
    tens.aggregate(Scored, usual=col("cents").mean()).named("tens").sink(MemorySink()).named("scored")
    return job


def test_rows_carry_aggregates_of_their_last_rows() -> None:
    rows = [Order(at(f"{20 * number}m"), "ab"[number == 3], "tea", 100 * number) for number in range(5)]
    found = testing.run(scored(rows), {"orders": rows}, kills=1)["scored"]
    assert [(row.orders, row.usual) for row in found] == [(1, 0), (2, 50), (3, 100), (1, 300), (3, 175)]


# ---- expressions


def titled(names: pa.StringArray) -> pa.StringArray:
    return pc.utf8_title(names)


def test_a_function_of_arrays_is_an_expression() -> None:
    job = Job("names")
    orders = orders_of(job, [Order(at("1s"), "a", "green tea", 250), Order(at("2s"), "b", "CUP", 300)])
    named = orders.with_columns(product=apply(titled, "product", returns=str))
    assert job.preview(named)["product"].to_pylist() == ["Green Tea", "Cup"]


# ---- aggregates


class Average(Record):
    product: str
    window_end: Instant
    cents: float


def added(sums: list[int], order: dict[str, Any]) -> list[int]:
    return [sums[0] + order["cents"] * order["pieces"], sums[1] + order["pieces"]]


def merged(some: list[int], others: list[int]) -> list[int]:
    return [some[0] + others[0], some[1] + others[1]]


def average(sums: list[int]) -> float:
    return sums[0] / sums[1]


AVERAGE = UserAggregate(create=lambda: [0, 0], add=added, merge=merged, result=average)


def averages(rows: list[Order]) -> Job:
    job = Job("averages")
    minutes = orders_of(job, rows).key_by("product").window(tumbling("1m"))
    minutes.aggregate(Average, cents=aggregate_by(AVERAGE)).sink(MemorySink()).named("averages")
    return job


def test_an_aggregate_of_ones_own_folds_rows() -> None:
    rows = [Order(at("1s"), "a", "tea", 300, 3), Order(at("2s"), "b", "tea", 500), Order(at("70s"), "a", "tea", 400)]
    out = testing.run(averages([]), {"orders": rows}, kills=1, seeds=3)
    assert out["averages"] == [Average("tea", at("1m"), 350.0), Average("tea", at("2m"), 400.0)]


# ---- state that expires


class Spree(Record):
    customer: str
    cents: int
    products: list[str]


class Sprees(Process[Order, Spree]):
    """Reports customers who spend more than 100 in ten minutes, with what they bought within a day."""

    spent: list[int] = list_state(ttl="10m")
    pieces: dict[str, int] = map_state(ttl="1d")

    def on_row(self, order: Order, ctx: Context) -> Iterator[Spree]:
        self.spent.append(order.cents)
        self.pieces[order.product] = self.pieces.get(order.product, 0) + order.pieces
        if sum(self.spent) > 10_000:
            yield Spree(order.customer, sum(self.spent), sorted(self.pieces))


def test_entries_of_lists_and_maps_expire_one_by_one() -> None:
    job = Job("sprees")
    found = orders_of(job, []).key_by("customer").process(Sprees).named("sprees")
    found.sink(MemorySink()).named("found")
    rows = [
        Order(at("0s"), "a", "cup", 100),
        Order(at("1h"), "a", "pot", 6_000),
        Order(at("65m"), "a", "tea", 5_000),
        Order(at("71m"), "a", "tea", 4_000),
        Order(at("24h"), "a", "pan", 20_000),
    ]
    out = testing.run(job, {"orders": rows}, kills=1, seeds=3)
    assert out["found"] == [Spree("a", 11_000, ["cup", "pot", "tea"]), Spree("a", 20_000, ["pan", "pot", "tea"])]


# ---- servers and failures


class Charged(Record):
    customer: str
    cents: int
    receipt: str


def charges(bank: str, rows: list[Order]) -> Job:
    def charge(order: Order, ctx: Context) -> Charged:
        answer = ctx.http.post(
            f"{bank}/charges",
            json={"customer": order.customer, "cents": order.cents},
            headers={"Authorization": "Bearer 123"},
            timeout="2s",
            retries=3,
            backoff="1ms",
        )
        if not answer.ok:
            raise ValueError(f"{answer.status}: {answer.text}")
        return Charged.extend(order, receipt=answer.json()["receipt"])

    job = Job("charges")
    charged, failed = orders_of(job, rows).map(charge).named("charge").catch()
    charged.sink(MemorySink()).named("charged")
    failed.map(reason).sink(MemorySink()).named("failed")
    return job


class Reason(Record):
    error: str
    customer: str


def reason(letter: DeadLetter) -> Reason:
    return Reason(letter.error, json.loads(letter.record)["customer"])


class Bank(BaseHTTPRequestHandler):
    """Is busy for the first try of each request, and refuses large amounts."""

    protocol_version = "HTTP/1.1"
    tries: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        assert self.headers["Authorization"] == "Bearer 123"
        self.tries.append(key)
        if self.tries.count(key) == 1:
            self._answer(503, b"")
        elif asked["cents"] > 1_000:
            self._answer(402, b"too much")
        else:
            self._answer(200, json.dumps({"receipt": f"{asked['customer']}-1"}).encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def bank() -> Iterator[str]:
    with served(Bank) as address:
        yield address


def test_requests_are_tried_again_and_failures_become_rows(bank: str) -> None:
    Bank.tries.clear()
    rows = [Order(at("1s"), "a", "tea", 300), Order(at("2s"), "b", "pot", 6_000)]
    out = testing.run(charges(bank, []), {"orders": rows})
    assert out["charged"] == [Charged("a", 300, "a-1")]
    assert out["failed"] == [Reason("ValueError: 402: too much", "b")]
    assert [Bank.tries.count(key) for key in dict.fromkeys(Bank.tries)] == [2, 2], "each request keeps its key"
