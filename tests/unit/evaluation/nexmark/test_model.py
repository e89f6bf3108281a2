"""Options of the generator: the defaults never change, and each option has its effect."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.bench import oracle
from clonos_py.connectors import MemorySink
from clonos_py.evaluation.nexmark.generator import BASE_TIME_US, SCHEMAS, Events, Generator
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.layout import Layout
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.nexmark.tempo import Tempo
from clonos_py.model.errors import SettingError
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import simulate_plan

SHUFFLED = Model(out_of_order_group=100)


@pytest.mark.parametrize(
    ("generator", "block", "digests"),
    [
        (Generator(), 0, ["3dbb337adb93167c", "eaa0163e8562b762", "72457a36a77047bf"]),
        (Generator(), 3, ["9b822b3a10df51c7", "7320037473424c70", "ddbd592119f81680"]),
        (Generator(seed=7, event_rate=1_000), 0, ["01f003851a53f01b", "4b95e469bbe1c246", "dbc6b170e51b4b5b"]),
        (Generator(seed=7, event_rate=1_000), 3, ["c82053e42ec004ff", "061a1c5919548e28", "c981c55bb594e09a"]),
    ],
)
def test_events_of_the_default_model_never_change(generator: Generator, block: int, digests: list[str]) -> None:
    assert [_digest(rows) for rows in generator.block(block)] == digests


def _digest(rows: pa.RecordBatch) -> str:
    digest = xxhash.xxh3_64()
    for column in rows.columns:
        digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()


def test_proportions_define_how_many_of_each_kind_a_cycle_has() -> None:
    generator = Generator(model=Model(person_proportion=2, auction_proportion=1, bid_proportion=4))
    assert generator.model.block_events == 7 * 7_100
    assert [generator.counts(n) for n in range(8)] == [
        (0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 1, 1), (2, 1, 2), (2, 1, 3), (2, 1, 4),
    ]  # fmt: skip
    blocks = [generator.block(n) for n in range(2)]
    assert [i for b in blocks for i in b.person["id"].to_pylist()] == list(range(1_000, 1_000 + 2 * 2 * 7_100))
    assert _ints(blocks[0].bid, "auction").max() <= 1_000 + 7_100 + 10
    assert _ints(blocks[1].bid, "bidder").min() >= 1_000 + 2 * 7_100 - 1_000


@pytest.mark.parametrize(("ratio", "share"), [(1, 0.0), (2, 0.5), (3, 2 / 3), (8, 7 / 8)])
def test_a_ratio_of_n_makes_all_but_one_nth_hot(ratio: int, share: float) -> None:
    block = Generator(model=Model(hot_auction_ratio=ratio, hot_bidder_ratio=ratio, hot_seller_ratio=ratio)).block(5)
    assert _share(_ints(block.bid, "auction") % 100 == 0) == pytest.approx(share + (1 - share) / 100, abs=0.01)
    assert _share(_ints(block.bid, "bidder") % 100 == 1) == pytest.approx(share + (1 - share) / 100, abs=0.01)
    assert _share(_ints(block.auction, "seller") % 100 == 0) == pytest.approx(share + (1 - share) / 100, abs=0.03)


@pytest.mark.parametrize("skew", [0, 0.1, 0.3, 1.0])
def test_skew_is_the_share_of_hot_keys_at_any_ratios(skew: float) -> None:
    block = Generator(model=Model(skew=skew, hot_bidder_ratio=9)).block(5)
    assert _share(_ints(block.bid, "bidder") % 100 == 1) == pytest.approx(skew + (1 - skew) / 100, abs=0.01)
    assert _share(_ints(block.auction, "seller") % 100 == 0) == pytest.approx(skew + (1 - skew) / 100, abs=0.03)


def test_active_people_and_open_auctions_bound_the_ids_in_bids() -> None:
    bid = Generator(model=Model(active_people=50, open_auctions=500)).block(3).bid
    cycle = 3_000 + np.arange(46_000) // 46
    above_bidder, above_auction = _ints(bid, "bidder") - (2_000 + cycle), _ints(bid, "auction") - (1_002 + cycle * 3)
    assert (above_bidder[_ints(bid, "bidder") % 100 != 1].min(), above_bidder.max()) == (-49, 10)
    assert (above_auction.min(), above_auction.max()) == (-500, 10)


@pytest.mark.parametrize("size", [600, 1_500])
def test_rows_have_the_mean_sizes_of_the_model(size: int) -> None:
    block = Generator(model=Model(person_bytes=size, auction_bytes=size, bid_bytes=size)).block(1)
    found = [_mean_bytes(block.person.slice(0, 500)) - 8, _mean_bytes(block.auction.slice(0, 500))]
    found.append(_mean_bytes(block.bid.slice(0, 500).drop_columns(["channel", "url"])))
    assert found == pytest.approx([size] * 3, rel=0.03)


def test_rows_whose_size_is_below_that_of_their_columns_have_no_extra_text() -> None:
    block = Generator(model=Model(person_bytes=1, auction_bytes=1, bid_bytes=1)).block(0)
    assert {extra for rows in block for extra in rows["extra"].to_pylist()} == {""}


def test_events_change_places_only_within_groups() -> None:
    times = _times(Generator(event_rate=1_000_000, model=SHUFFLED), 30_000) - BASE_TIME_US
    assert [sorted(times[n : n + 100]) for n in range(0, 30_000, 100)] == np.arange(30_000).reshape(-1, 100).tolist()
    assert times[:4].tolist() == [0, 53, 6, 59]  # every position of a group holds 953 times its number, modulo 100


def test_a_shuffled_model_has_the_same_events_in_another_order() -> None:
    mixed, plain = (_tables(Generator(seed=4, model=model), (0, 60_000)) for model in (SHUFFLED, Model()))
    assert [table.sort_by("date_time").to_pylist() for table in mixed] == [table.to_pylist() for table in plain]


def test_events_are_out_of_order_by_no_more_than_the_source_declares() -> None:
    for model in (SHUFFLED, Model(out_of_order_group=50, next_event_rate=100, rate_period_s=20)):
        source = NexmarkSource(events=20_000, event_rate=1_000, model=model)
        times = _times(source.generator, 20_000)
        behind = (np.maximum.accumulate(times) - times).max()
        assert 0 < behind <= source.out_of_order / timedelta(microseconds=1) <= 10 * behind
    assert NexmarkSource(events=5).out_of_order == timedelta()


@settings(max_examples=20, deadline=None)
@given(start=st.integers(0, 100_000), size=st.integers(0, 60_000), at=st.integers(0, 1_000_000))
def test_a_range_of_shuffled_events_is_the_same_whole_or_in_two_pieces(start: int, size: int, at: int) -> None:
    generator, stop, cut = Generator(model=SHUFFLED), start + size, start + at % (size + 1)
    whole = _tables(generator, (start, stop))
    assert whole == _tables(Generator(model=SHUFFLED), (start, cut), (cut, stop))
    assert sum(table.num_rows for table in whole) == size


def test_a_square_rate_changes_to_the_next_one_and_back() -> None:
    times = _times(Generator(event_rate=1_000, model=Model(next_event_rate=4_000, rate_period_s=10)), 30_000)
    per_second = Counter(((times - BASE_TIME_US) // 1_000_000).tolist())
    assert [per_second[second] for second in range(12)] == [1_000] * 5 + [4_000] * 5 + [1_000] * 2


def test_a_sine_rate_changes_in_ten_steps() -> None:
    model = Model(next_event_rate=3_000, rate_shape="sine", rate_period_s=10)
    times = _times(Generator(event_rate=1_000, model=model), 45_000)
    per_second = Counter(((times - BASE_TIME_US) // 1_000_000).tolist())
    assert [per_second[second] for second in range(11)] == [
        1_000, 1_191, 1_691, 2_309, 2_809, 3_000, 2_809, 2_309, 1_691, 1_191, 1_000,
    ]  # fmt: skip
    assert (np.diff(times) > 0).all()


def test_an_auctions_mean_duration_follows_the_rate() -> None:
    model = Model(next_event_rate=100, rate_period_s=20)
    auction = Generator(event_rate=1_000, model=model).block(0).auction
    begins = _ints(auction, "date_time") - BASE_TIME_US
    lasts = _ints(auction, "expires") - BASE_TIME_US - begins
    assert lasts[begins < 5_000_000].mean() == pytest.approx(1_666_667, rel=0.15)
    slow = (begins > 10_000_000) & (begins < 12_000_000)
    assert lasts[slow].mean() > 3 * lasts[begins < 5_000_000].mean()


@given(rates=st.lists(st.integers(1, 5_000), min_size=1, max_size=10), number=st.integers(0, 200_000))
def test_a_tempo_converts_event_numbers_to_times_and_back(rates: list[int], number: int) -> None:
    tempo = Tempo(tuple(rates), step_s=3)
    (exact,) = tempo.times_us(np.array([number])).tolist()
    assert tempo.due_us(number) == pytest.approx(exact, abs=1)
    assert tempo.events_until(tempo.due_us(number)) == pytest.approx(number, abs=0.01)


def test_a_paced_source_keeps_the_shape_of_the_rate() -> None:
    model = Model(next_event_rate=3_000, rate_period_s=4)
    source = NexmarkSource(events=30_000, event_rate=1_000, rate=2_000, partitions=2, model=model)
    assert source.pace is not None
    pace = source.pace
    seconds = [pace.tempo.events_until(second * 1_000_000 / pace.slower) for second in range(5)]
    assert [after - before for before, after in itertools.pairwise(seconds)] == [2_000, 6_000, 2_000, 6_000]


@settings(max_examples=20, deadline=None)
@given(events=st.integers(1, 300_000), most=st.integers(1, 9), group=st.sampled_from([1, 10, 100, 5_000]))
def test_a_layout_assigns_every_event_to_one_partition_and_counts_its_kinds(events: int, most: int, group: int) -> None:
    model = Model(out_of_order_group=group)
    layout, generator = Layout(events, most, model), Generator(model=model)
    dealt = [
        (block * model.block_events + start, block * model.block_events + stop)
        for partition in range(layout.partitions)
        for block, start, stop in layout.stripes(partition)
    ]
    assert [edge for stripe in sorted(dealt) for edge in stripe][1:-1:2] == [start for start, _ in sorted(dealt)][1:]
    assert (min(dealt)[0], max(stop for _, stop in dealt)) == (0, events)
    counts = [layout.counts(partition, layout.size(partition)) for partition in range(layout.partitions)]
    assert tuple(map(sum, zip(*counts, strict=True))) == generator.counts(events)


@pytest.mark.parametrize("query", ["q3", "q5", "q8", "q11"])
def test_queries_have_the_right_answers_on_events_out_of_order(query: str) -> None:
    source = NexmarkSource(events=4_000, event_rate=100, partitions=2, model=Model(out_of_order_group=500, skew=0.2))
    sink = MemorySink()
    simulate_plan(plan(build(query, source, sink), parallelism=2), seed=1, kills=1)
    table = sink.table()
    assert table is not None
    assert difference(oracle.expected(query, source), [tuple(row.values()) for row in table.to_pylist()]) is None
    sink.clear()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bid_proportion": 0}, "bid_proportion is 0: Nexmark events need at least 1"),
        ({"skew": 1.5}, "skew is 1.5: it must be from 0 to 1"),
        ({"bid_bytes": 100_000}, "bid_bytes is 100000: at most 10000"),
        ({"rate_shape": "saw"}, "rate_shape is 'saw': choose one of square, sine"),
        ({"out_of_order_group": 7}, "out_of_order_group is 7: events are made in blocks of 50000"),
    ],
)
def test_an_impossible_model_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Model(**wrong)


def _tables(generator: Generator, *ranges: tuple[int, int]) -> list[pa.Table]:
    pieces: list[Events] = [piece for start, stop in ranges for piece in generator.events(start, stop)]
    return [
        pa.Table.from_batches([piece[kind] for piece in pieces], schema).combine_chunks()
        for kind, schema in enumerate(SCHEMAS)
    ]


def _times(generator: Generator, events: int) -> npt.NDArray[np.int64]:
    """The times of all kinds, in the order of the stream."""
    times, at = np.empty(events, dtype=np.int64), np.zeros(3, dtype=np.int64)
    columns = [np.asarray(table["date_time"]) for table in _tables(generator, (0, events))]
    for number, (before, after) in enumerate(itertools.pairwise(generator.counts(n) for n in range(events + 1))):
        kind = next(kind for kind in range(3) if before[kind] != after[kind])
        times[number] = columns[kind][at[kind]]
        at[kind] += 1
    return times


def _ints(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows[column], dtype=np.int64)


def _share(flags: npt.NDArray[np.bool_]) -> float:
    return float(flags.mean())


def _mean_bytes(rows: pa.RecordBatch) -> float:
    row_bytes = [sum(len(v) if isinstance(v, str) else 8 for v in row.values()) for row in rows.to_pylist()]
    return sum(row_bytes) / len(row_bytes)
