"""The Nexmark generator: official proportions and distributions, and event n determined by n alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.evaluation.nexmark.generator import (
    AUCTION,
    BASE_TIME_US,
    BID,
    PERSON,
    Events,
    Generator,
)
from clonos_py.evaluation.nexmark.model import OFFICIAL
from clonos_py.evaluation.nexmark.words import words

BLOCK_EVENTS = OFFICIAL.block_events
GENERATOR = Generator(seed=7)


def test_of_50_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    assert GENERATOR.counts(50) == (1, 3, 46)
    assert [rows.num_rows for rows in GENERATOR.block(3)] == [1_000, 3_000, 46_000]
    kinds = [
        tuple(after - before for before, after in zip(GENERATOR.counts(n), GENERATOR.counts(n + 1), strict=True))
        for n in range(50)
    ]
    assert kinds == [(1, 0, 0)] + [(0, 1, 0)] * 3 + [(0, 0, 1)] * 46


def test_every_column_of_the_schema_is_present_and_no_value_is_missing() -> None:
    block = GENERATOR.block(0)
    assert [rows.schema for rows in block] == [PERSON, AUCTION, BID]
    for rows in block:
        rows.validate(full=True)
        assert all(column.null_count == 0 for column in rows.columns)


def test_ids_are_consecutive_over_blocks_and_begin_at_1000() -> None:
    blocks = [GENERATOR.block(n) for n in range(2)]
    assert [i for b in blocks for i in b.person["id"].to_pylist()] == list(range(1_000, 3_000))
    assert [i for b in blocks for i in b.auction["id"].to_pylist()] == list(range(1_000, 7_000))


def test_event_n_happens_n_over_event_rate_seconds_after_the_base_time() -> None:
    block = Generator(event_rate=1_000).block(2)
    first = BASE_TIME_US + 2 * BLOCK_EVENTS * 1_000
    assert block.person["date_time"].to_pylist()[:2] == [first, first + 50_000]
    assert block.auction["date_time"].to_pylist()[:4] == [first + 1_000, first + 2_000, first + 3_000, first + 51_000]
    assert block.bid["date_time"].to_pylist()[45:47] == [first + 49_000, first + 54_000]


@given(start=st.integers(0, 2 * BLOCK_EVENTS), size=st.integers(0, BLOCK_EVENTS + 100), at=st.integers(0, 1_000_000))
def test_a_range_has_the_same_events_whole_or_in_two_pieces(start: int, size: int, at: int) -> None:
    stop, cut = start + size, start + at % (size + 1)
    whole = _joined(GENERATOR, (start, stop))
    assert whole == _joined(Generator(seed=7), (start, cut), (cut, stop))
    assert [table.num_rows for table in whole] == [
        b - a for a, b in zip(GENERATOR.counts(start), GENERATOR.counts(stop), strict=True)
    ]


def test_another_seed_gives_other_events() -> None:
    assert Generator(seed=8).block(0).bid["price"] != GENERATOR.block(0).bid["price"]


def test_blocks_differ_from_each_other() -> None:
    extras = [GENERATOR.block(n).bid["extra"].to_pylist() for n in range(4)]
    assert len({tuple(GENERATOR.block(n).bid["price"].to_pylist()) for n in range(4)}) == 4
    assert len({e for block in extras for e in block}) > 0.99 * 4 * 46_000


def test_half_of_the_bids_are_for_the_hot_auction_and_three_quarters_by_the_hot_bidder() -> None:
    bid = GENERATOR.block(5).bid
    assert _share(_ints(bid, "auction") % 100 == 0) == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    assert _share(_ints(bid, "bidder") % 100 == 1) == pytest.approx(0.75 + 0.25 / 100, abs=0.01)


def test_three_quarters_of_the_auctions_are_by_the_hot_seller() -> None:
    seller = _ints(GENERATOR.block(5).auction, "seller")
    assert _share(seller % 100 == 0) == pytest.approx(0.75 + 0.25 / 100, abs=0.03)


def test_bids_are_for_recent_auctions_by_recent_people() -> None:
    for number in (0, 4):
        block = GENERATOR.block(number)
        cycle = number * 1_000 + np.arange(46_000) // 46
        above_auction = _ints(block.bid, "auction") - (1_000 + cycle * 3 + 2)
        above_bidder = _ints(block.bid, "bidder") - (2_000 + cycle)
        assert above_auction.min() >= -100
        assert above_auction.max() == 10
        assert above_bidder.min() >= -999
        assert above_bidder.max() == 10
        assert _ints(block.bid, "auction").min() >= 1_000
        assert _ints(block.bid, "bidder").min() >= 2_000


def test_prices_spread_evenly_over_six_orders_of_magnitude() -> None:
    prices = _ints(GENERATOR.block(1).bid, "price")
    decades = Counter(len(str(price)) for price in prices.tolist())
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    assert all(decades[digits] / len(prices) == pytest.approx(1 / 6, abs=0.01) for digits in range(3, 9))


def test_categories_states_and_cities_are_the_official_ones() -> None:
    block = GENERATOR.block(1)
    assert set(block.auction["category"].to_pylist()) == {10, 11, 12, 13, 14}
    assert set(block.person["state"].to_pylist()) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert len(set(block.person["city"].to_pylist())) == 10


def test_half_of_the_bids_come_through_four_hot_channels_and_each_channel_has_one_page() -> None:
    bid = GENERATOR.block(1).bid
    pages: dict[str, str] = {}
    for channel, url in zip(map(str, bid["channel"]), map(str, bid["url"]), strict=True):
        assert pages.setdefault(channel, url) == url
        assert url.startswith("https://www.nexmark.com/")
    hot = Counter(bid["channel"].to_pylist())
    assert sum(hot[name] for name in ("Google", "Facebook", "Baidu", "Apple")) / 46_000 == pytest.approx(0.5, abs=0.01)


def test_folders_of_pages_have_underscores_and_pages_name_their_channel_by_its_reversed_bits() -> None:
    bid = GENERATOR.block(1).bid
    pages = dict(zip(map(str, bid["channel"]), map(str, bid["url"]), strict=True))
    assert len(pages) > 8_000
    folders = [folder for url in pages.values() for folder in url.split("/")[3:6]]
    assert {len(folder) for folder in folders} == {3, 4}
    assert "".join(folders).count("_") / len("".join(folders)) == pytest.approx(1 / 13, abs=0.01)
    named = {channel: url.partition("&channel_id=")[2] for channel, url in pages.items()}
    assert sum(map(bool, named.values())) / len(pages) == pytest.approx(0.9, abs=0.02)
    known = {
        0: "0",
        1: "-2147483648",
        2: "1073741824",
        3: "1073741824",
        4: "536870912",
        5: "1610612736",
        6: "1610612736",
    }
    found = {number: named.get(f"channel-{number}") for number in known}
    assert [found[number] for number in known if found[number]] == [known[number] for number in known if found[number]]
    assert len([number for number in known if found[number]]) > 3
    assert all(len(address) <= 15 and address.endswith(".com") for address in _texts(GENERATOR, "email_address"))
    assert any(" " in address for address in _texts(GENERATOR, "email_address"))


def test_the_extra_text_has_the_official_distribution_of_letters() -> None:
    """q14 counts a ``c``, which is one letter of 52."""
    text = "".join(map(str, GENERATOR.block(1).bid["extra"]))
    assert {min(text), max(text)} == {"H", "z"}
    assert text.count("c") / len(text) == pytest.approx(1 / 52, rel=0.05)
    assert text.count("a") / len(text) == pytest.approx(1 / 26, rel=0.05)
    assert text.count("\\") / len(text) == pytest.approx(1 / 52, rel=0.05)


def test_sizes_average_200_500_and_100_bytes() -> None:
    block = GENERATOR.block(1)
    counted = (block.person, block.auction, block.bid.drop_columns(["channel", "url"]))
    assert [_mean_bytes(rows) for rows in counted] == pytest.approx(
        [200 + 8, 500, 100], rel=0.02
    )  # the original does not count a person's time


def test_random_words_have_no_visible_bias_in_any_bit() -> None:
    for key in (0, 1, 2**32, 2**63 + 5):
        values = words(key, 40_000)
        for bit in range(32):
            assert abs(int((values >> bit & 1).sum()) - 20_000) < 600


def test_a_part_of_a_block_is_counted_from_its_beginning() -> None:
    block = GENERATOR.block(2)
    piece = GENERATOR.part(block, 49, 104)
    assert piece.person == block.person.slice(1, 2)
    assert piece.auction == block.auction.slice(3, 6)
    assert piece.bid == block.bid.slice(45, 47)


def _joined(generator: Generator, *ranges: tuple[int, int]) -> list[pa.Table]:
    pieces: list[Events] = [piece for start, stop in ranges for piece in generator.events(start, stop)]
    schemas = (PERSON, AUCTION, BID)
    return [
        pa.Table.from_batches([piece[kind] for piece in pieces], schema).combine_chunks()
        for kind, schema in enumerate(schemas)
    ]


def _texts(generator: Generator, column: str) -> list[str]:
    return [str(text) for text in generator.block(1).person[column]]


def _ints(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows[column], dtype=np.int64)


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean())


def _mean_bytes(rows: pa.RecordBatch) -> float:
    row_bytes = [sum(len(v) if isinstance(v, str) else 8 for v in row.values()) for row in rows.to_pylist()]
    return sum(row_bytes) / len(row_bytes)
