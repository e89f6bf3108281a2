"""The SQL texts, against the plain Python computation over generated events, and on rows written by hand."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from clonos_py.bench import oracle
from clonos_py.evaluation.nexmark.events import Auction, Bid, Person
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.oracle import answer, view_generated
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = NexmarkSource(events=3_000, event_rate=100, seed=3, partitions=2, model=Model(out_of_order_group=50, skew=0.4))
NOON = 1_700_049_600_000_000
"""2023-11-15 12:00:00 UTC."""
SECOND, DAY = 1_000_000, 86_400_000_000


@pytest.fixture(scope="module")
def generated(spark: SparkSession) -> SparkSession:
    view_generated(spark, SOURCE)
    for kind in ("person", "auction", "bid"):
        spark.table(kind).cache().createOrReplaceTempView(kind)
    return spark


BY_HAND = ("q4", "q6", "q9", "q10", "q13", "q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22")
"""Queries with tests of their own below, which compare every column."""


@pytest.mark.parametrize(
    "query",
    [pytest.param(q, marks=[pytest.mark.thorough] * (q in BY_HAND)) for q in QUERIES if q != "q12"],
)
def test_spark_has_the_answers_of_the_plain_computation(generated: SparkSession, query: str) -> None:
    rows = [tuple(row) for row in answer(generated, query).collect()]
    assert rows
    assert difference(oracle.expected(query, SOURCE), rows) is None


def test_query_12_counts_the_bids_of_every_bidder(generated: SparkSession) -> None:
    bidders = Counter(row[1] for row in oracle.expected("q0", SOURCE))
    assert {tuple(row) for row in answer(generated, "q12").collect()} == set(bidders.items())


def auction(id: int, seller: int = 7, category: int = 10, start: int = 0, seconds: int = 60) -> Auction:
    begun = NOON + start * SECOND
    return Auction(id, f"item {id}", "fine", 1, 2, begun, begun + seconds * SECOND, seller, category, "more")


def bid(
    auction: int, price: int, at: int = 1, bidder: int = 1, channel: str = "Apple", url: str = "https://n/a/b/c/i?q=1",
    extra: str = "cac", day: int = 0,
) -> Bid:  # fmt: skip
    return Bid(auction, bidder, price, channel, url, NOON + at * SECOND + day * DAY, extra)


def answered(spark: SparkSession, query: str, bids: list[Bid], auctions: list[Auction] | None = None) -> list[Any]:
    for name, record, rows in (("person", Person, []), ("auction", Auction, auctions or []), ("bid", Bid, bids)):
        spark.createDataFrame(_table(record, rows)).createOrReplaceTempView(name)
    return sorted(tuple(row) for row in answer(spark, query).collect())


def _table(record: type[Record], rows: list[Any]) -> pa.Table:
    names = record.schema().names
    return pa.Table.from_pylist([{name: getattr(row, name) for name in names} for row in rows], record.schema())


def test_query_4_averages_the_highest_bids_of_the_open_auctions_of_a_category(spark: SparkSession) -> None:
    auctions = [auction(1), auction(2), auction(3, category=11, start=10), auction(4)]
    bids = [bid(1, 50), bid(1, 70), bid(2, 75, at=60), bid(2, 999, at=61), bid(3, 999, at=9), bid(3, 8, at=10)]
    assert answered(spark, "q4", bids, auctions) == [(10, 72), (11, 8)]


def test_query_6_averages_the_prices_of_the_last_eleven_auctions_of_a_seller(spark: SparkSession) -> None:
    auctions = [auction(number) for number in range(12)] + [auction(50, seller=8)]
    bids = [bid(number, 100 + number, at=number) for number in range(12)] + [bid(3, 1), bid(50, 40)]
    averages = [(7, (100 + 100 + last) // 2) for last in range(11)] + [(7, 106)]
    assert answered(spark, "q6", bids, auctions) == sorted([*averages, (8, 40)])


def test_query_9_gives_the_highest_bid_of_each_auction_and_the_first_of_equal_ones(spark: SparkSession) -> None:
    auctions = [auction(1), auction(2), auction(3)]
    bids = [bid(1, 50), bid(1, 70, at=3, bidder=4), bid(1, 70, at=2, bidder=5), bid(2, 9, at=61), bid(3, 1, bidder=6)]
    found = answered(spark, "q9", bids, auctions)
    assert [(row[0], row[10:13], row[13]) for row in found] == [
        (1, (1, 5, 70), NOON + 2 * SECOND),
        (3, (3, 6, 1), NOON + SECOND),
    ]
    assert found[0][:10] == (1, "item 1", "fine", 1, 2, NOON, NOON + 60 * SECOND, 7, 10, "more")


def test_query_10_gives_the_day_and_minute_of_each_bid(spark: SparkSession) -> None:
    found = answered(spark, "q10", [bid(1, 5, at=59), bid(1, 6, at=60)])
    assert [row[2:] for row in found] == [
        (5, NOON + 59 * SECOND, "cac", "2023-11-15", "12:00"),
        (6, NOON + 60 * SECOND, "cac", "2023-11-15", "12:01"),
    ]


def test_query_13_looks_up_the_auction_in_a_bounded_table(generated: SparkSession) -> None:
    found = answered(generated, "q13", [bid(20_007, 5), bid(9_999, 6)])
    assert found == [(9_999, 1, 6, NOON + SECOND, "9999"), (20_007, 1, 5, NOON + SECOND, "7")]


def test_query_14_distinguishes_day_from_night_and_counts_letters(spark: SparkSession) -> None:
    hour = 3_600
    bids = [
        bid(1, 1_101_322),  # 1,000,000.376 in euros
        bid(2, 1_101_321),  # 999,999.468
        bid(3, 2_000_000, at=7 * hour - 1),
        bid(4, 2_000_000, at=7 * hour),
        bid(5, 2_000_000, at=8 * hour, extra=""),
        bid(6, 55_066_079, at=-5 * hour),
        bid(7, 55_066_080, at=-5 * hour),
    ]
    found = answered(spark, "q14", bids)
    assert [(row[0], row[3], row[6]) for row in found] == [
        (1, "dayTime", 2), (3, "dayTime", 2), (4, "otherTime", 2), (5, "nightTime", 0), (6, "otherTime", 2),
    ]  # fmt: skip
    assert found[0][2] == Decimal("1000000.376")


STATISTICS = [
    bid(1, 9_999, bidder=1),
    bid(1, 10_000, bidder=1, at=70),
    bid(2, 999_999, bidder=2),
    bid(2, 1_000_000, bidder=2),
    bid(2, 3, bidder=3, channel="Baidu"),
    bid(1, 8, day=1),
]
SECOND_DAY = (1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0)


def test_query_15_counts_bids_bidders_and_auctions_by_day_and_price(spark: SparkSession) -> None:
    assert answered(spark, "q15", STATISTICS) == [
        ("2023-11-15", 5, 2, 2, 1, 3, 2, 2, 1, 2, 2, 2, 1),
        ("2023-11-16", *SECOND_DAY),
    ]


def test_query_16_counts_by_channel_and_gives_the_last_minute(spark: SparkSession) -> None:
    assert answered(spark, "q16", STATISTICS) == [
        ("Apple", "2023-11-15", "12:01", 4, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1),
        ("Apple", "2023-11-16", "12:00", *SECOND_DAY),
        ("Baidu", "2023-11-15", "12:00", *SECOND_DAY),
    ]


def test_query_17_sums_prices_by_auction_and_day(spark: SparkSession) -> None:
    assert answered(spark, "q17", STATISTICS) == [
        (1, "2023-11-15", 2, 1, 1, 0, 9_999, 10_000, 9_999, 19_999),
        (1, "2023-11-16", 1, 1, 0, 0, 8, 8, 8, 8),
        (2, "2023-11-15", 3, 1, 1, 1, 3, 1_000_000, 666_667, 2_000_002),
    ]


def test_query_18_gives_the_last_bid_of_a_bidder_for_an_auction(spark: SparkSession) -> None:
    found = answered(spark, "q18", [bid(1, 9, at=2), bid(1, 5, at=3), bid(2, 4), bid(1, 7, bidder=2)])
    assert [row[:3] for row in found] == [(1, 1, 5), (1, 2, 7), (2, 1, 4)]


def test_query_19_ranks_the_ten_highest_bids_of_an_auction(spark: SparkSession) -> None:
    bids = [bid(1, price, bidder=price) for price in range(12)] + [bid(1, 11, at=0, bidder=99), bid(2, 3)]
    ranked = [(row[0], row[7], row[1]) for row in answered(spark, "q19", bids)]
    first = [(1, 1, 99), *((1, 13 - bidder, bidder) for bidder in range(11, 2, -1))]
    assert sorted(ranked) == sorted([*first, (2, 1, 1)])


def test_query_20_joins_bids_with_auctions_of_category_10(spark: SparkSession) -> None:
    found = answered(spark, "q20", [bid(1, 5), bid(2, 6), bid(3, 7)], [auction(1), auction(2, category=11)])
    assert found == [
        (1, 1, 5, "Apple", "https://n/a/b/c/i?q=1", NOON + SECOND, "cac",
         "item 1", "fine", 1, 2, NOON, NOON + 60 * SECOND, 7, 10, "more"),
    ]  # fmt: skip


def test_query_21_finds_the_number_of_a_channel_by_its_name_or_in_the_page(spark: SparkSession) -> None:
    bids = [
        bid(1, 5, channel="baidu"),
        bid(2, 6, channel="x", url="https://n/a/b/c/i?q=1&channel_id=42&z=1"),
        bid(3, 7, channel="y"),
    ]
    assert answered(spark, "q21", bids) == [(1, 1, 5, "baidu", "3"), (2, 1, 6, "x", "42")]


def test_query_22_splits_the_address_of_the_page(spark: SparkSession) -> None:
    assert answered(spark, "q22", [bid(1, 5)]) == [(1, 1, 5, "Apple", "a", "b", "c")]


def test_an_unknown_query_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="no Nexmark query 'q23': choose one of q0, q1"):
        answer(spark, "q23")
