"""Process functions of two inputs in whole jobs: under every protocol and any kill, both inputs of a key share one
state, each row once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Context, CoProcess, Instant, Job, Record, Stream, at, col, event_timer, state, testing
from clonos_py.connectors import MemorySink, MemorySource, read_results
from clonos_py.settings.protocols import ALIGNED, PROTOCOL_NAMES, UNALIGNED, UNCOORDINATED
from tests.jobs.half_way import RECORDS, go_on, stopped_half_way
from tests.jobs.rows import values

SECOND = at("1s")
KEYS = 5


class Order(Record):
    id: int
    customer: str
    at: Instant


class Payment(Record):
    id: int
    payer: str
    at: Instant


class Numbered(Record):
    customer: str
    number: int
    side: str
    id: int


class Summed(Record):
    customer: str
    orders: int
    payments: int
    at: Instant


class Account(CoProcess[Order, Payment, Numbered | Summed]):
    """Numbers the rows of a customer, and emits a sum after two seconds without a row."""

    orders: int = state(0)
    payments: int = state(0)
    quiet = event_timer()

    def on_left(self, order: Order, ctx: Context) -> Iterator[Numbered | Summed]:
        assert ctx.key == order.customer
        self.orders += 1
        yield self.numbered(ctx, "order", order.id)

    def on_right(self, payment: Payment, ctx: Context) -> Iterator[Numbered | Summed]:
        assert ctx.key == payment.payer
        self.payments += 1
        yield self.numbered(ctx, "payment", payment.id)

    def numbered(self, ctx: Context, side: str, number: int) -> Numbered:
        self.quiet.set(ctx.event_time + 2 * SECOND)
        return Numbered(ctx.key, self.orders + self.payments, side, number)

    @quiet.fires
    def summed(self, ctx: Context) -> Summed:
        return Summed(ctx.key, self.orders, self.payments, ctx.event_time)


ORDERS = [Order(n, f"c{n % KEYS}", n * SECOND // 4) for n in range(60)]
PAYMENTS = [Payment(n, f"c{n * 3 % KEYS}", n * SECOND // 3) for n in range(45)]


def in_pieces(rows: Sequence[Record]) -> list[Sequence[Record]]:
    """As ``testing.run`` is to take them in."""
    return [rows[start : start + 5] for start in range(0, len(rows), 5)]


def protocols(always: str) -> pytest.MarkDecorator:
    """One of them, and all with THOROUGH: ``test_loops.py`` and ``tests/sim`` have the differences between them."""
    others = (pytest.param(name, marks=pytest.mark.thorough) for name in PROTOCOL_NAMES if name != always)
    return pytest.mark.parametrize("protocol", [always, *others])


GIVEN = {"orders": in_pieces(ORDERS), "payments": in_pieces(PAYMENTS)}


def accounts(in_order: bool = False, **settings: Any) -> Job:
    job = Job("accounts", **settings)
    orders = job.source(MemorySource([], schema=Order), event_time="at").named("orders")
    payments = job.source(MemorySource([], schema=Payment), event_time="at").named("payments")
    both = orders.key_by("customer").connect(payments.key_by("payer"))
    numbered, summed = both.process(Account, in_order=in_order).named("accounts").split(Numbered, Summed)
    numbered.sink(MemorySink()).named("numbered")
    summed.sink(MemorySink()).named("summed")
    return job


def expected_numbers() -> list[Numbered]:
    """The expected numbers: by time, orders before payments."""
    rows = sorted([(o.at, 0, o.id, o.customer) for o in ORDERS] + [(p.at, 1, p.id, p.payer) for p in PAYMENTS])
    count = Counter[str]()
    found = []
    for _, side, number, customer in rows:
        count[customer] += 1
        found.append(Numbered(customer, count[customer], ("order", "payment")[side], number))
    return found


@protocols(ALIGNED.name)
def test_in_order_rows_of_both_inputs_come_by_time(protocol: str) -> None:
    job = accounts(in_order=True, protocol=protocol)
    out = testing.run(job, GIVEN, kills=2, seeds=3, parallelism=2)
    assert values(out["numbered"]) == values(expected_numbers())
    last = {row.customer: row for row in sorted(out["summed"], key=lambda row: row.at)}
    assert {c: (row.orders, row.payments) for c, row in last.items()} == {
        f"c{n}": (len(ORDERS) // KEYS, len(PAYMENTS) // KEYS) for n in range(KEYS)
    }


@protocols(UNCOORDINATED.name)
def test_without_in_order_each_row_of_both_inputs_counts_once(protocol: str) -> None:
    """The order of arrival is random, and a replay repeats it."""
    orders_of_arrival = set()
    for seed in range(3):
        out = testing.run(accounts(protocol=protocol), GIVEN, kills=2, first_seed=seed, parallelism=2)["numbered"]
        by_customer: dict[str, list[Numbered]] = defaultdict(list)
        for row in out:
            by_customer[row.customer].append(row)
        for rows in by_customer.values():
            assert sorted(row.number for row in rows) == list(range(1, 22))
            assert Counter(row.side for row in rows) == {"order": 12, "payment": 9}
        orders_of_arrival.add(tuple(sorted((row.customer, row.number, row.id) for row in out)))
    assert len(orders_of_arrival) > 1


class Left(Record):
    id: int
    left: int


class Less(Record):
    id: int
    by: int


class Lessening(CoProcess[Left, Less, Left]):
    """Rows of the loop are reduced by the amount that the other input gave for the key; rows that come before it
    wait."""

    by: int = state(0)
    waiting: int = state(0)

    def on_left(self, row: Left, ctx: Context) -> Left | None:
        if not self.by:
            self.waiting = row.left
            return None
        return Left(row.id, row.left - self.by)

    def on_right(self, less: Less, ctx: Context) -> Left | None:
        self.by = less.by
        return Left(less.id, self.waiting - self.by) if self.waiting else None


@protocols(UNALIGNED.name)
def test_rows_in_a_loop_meet_those_of_another_stream(protocol: str) -> None:
    def step(rows: Stream[Left]) -> tuple[Stream[Left], Stream[Left]]:
        less = rows.key_by("id").connect(lesses.key_by("id")).process(Lessening).named("lessening")
        return less.filter(col("left") > 0), less.filter(col("left") <= 0)

    job = Job("lessening", protocol=protocol)
    lesses = job.source(MemorySource([], schema=Less)).named("lesses")
    numbers = job.source(MemorySource([], schema=Left)).named("numbers")
    numbers.iterate(step).sink(MemorySink()).named("done")
    given = {
        "numbers": in_pieces([Left(n, 3 * n + 3) for n in range(20)]),
        "lesses": in_pieces([Less(n, 3) for n in range(20)]),
    }
    out = testing.run(job, given, kills=2, seeds=3, parallelism=2)
    assert sorted(out["done"], key=lambda row: row.id) == [Left(n, 0) for n in range(20)]


FILES, ROWS, RESUMED_KEYS = 15, 300, 7
RESUMED = (
    RECORDS
    + """
class Total(Record):
    id: int
    total: int

class Sum(CoProcess[Row, Row, Total]):
    left: int = state(0)
    right: int = state(0)
    def on_left(self, row: Row, ctx: Context) -> Total:
        self.left += 1
        return self.both(row)
    def on_right(self, row: Row, ctx: Context) -> Total:
        self.right += 1
        return self.both(row)
    def both(self, row: Row) -> Total:
        return Total(row.id, self.left + self.right)

def slow(row: Row) -> Row:
    take_time()
    return row

job = Job("resumed", checkpoint_interval="20ms", runtime="local")
left = job.source(FileSource("in", Row, format="jsonl")).named("left").map(slow).named("slow_left")
right = job.source(FileSource("in", Row, format="jsonl")).named("right").map(slow).named("slow_right")
left.key_by("key").connect(right.key_by("key")).process(Sum).named("sums").sink(FileSink("out")).named("out")
"""
)


def test_a_job_resumes_at_another_parallelism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_half_way(tmp_path, RESUMED, FILES, ROWS, RESUMED_KEYS)
    monkeypatch.chdir(tmp_path)
    done = go_on("--parallelism", "3")
    assert done.returncode == 0, done.stderr
    rows = read_results("out")
    assert Counter(row["id"] for row in rows) == dict.fromkeys(range(ROWS), 2)
    of_key = [[row["total"] for row in rows if row["id"] % RESUMED_KEYS == key] for key in range(RESUMED_KEYS)]
    assert all(sorted(totals) == list(range(1, len(totals) + 1)) for totals in of_key)
