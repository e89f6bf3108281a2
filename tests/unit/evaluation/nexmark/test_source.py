"""The Nexmark source: every event once, from any offset, at the pace asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.evaluation.nexmark.generator import AUCTION, BID, PERSON, Generator
from clonos_py.evaluation.nexmark.model import OFFICIAL
from clonos_py.evaluation.nexmark.schedule import SourcePosition
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.nexmark.stripe_reader import StripeReader
from clonos_py.model.errors import SettingError, SourceError
from clonos_py.model.operators import End, Read, Wait

ALL = (None, None, None)
NOW = 1_800_000_000_000_000


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_event_is_read_once_at_any_parallelism(parallelism: int) -> None:
    source = NexmarkSource(events=60_123, seed=3)
    reads = [read for i in range(parallelism) for read in _drain(_reader(source, i, parallelism))]
    assert sum(read.events for read in reads) == 60_123
    assert _sorted(reads) == _expected(source)


def test_large_streams_are_read_in_whole_blocks_in_turn() -> None:
    reads = _drain(_reader(NexmarkSource(events=16 * OFFICIAL.block_events, partitions=4)))
    assert [read.partition for read in reads] == [0, 1, 2, 3] * 4
    assert {read.events for read in reads} == {OFFICIAL.block_events}
    first = [read.rows[2]["date_time"][0].as_py() for read in reads if read.rows[2] is not None]
    assert first == sorted(first)


def test_an_instance_without_a_partition_ends_at_once() -> None:
    assert _reader(NexmarkSource(events=10, partitions=2), 1, 2).poll(0) == End()


def test_no_partition_is_empty() -> None:
    for events in (1, 49, 51, 333, 99_999):
        source = NexmarkSource(events=events)
        assert {read.partition for read in _drain(_reader(source))} == set(range(_reader(source).partitions()))


@settings(max_examples=10, deadline=None)
@given(read_rows=st.integers(1, 3_000), stop_after=st.integers(0, 40))
def test_a_reader_continues_at_any_offset(read_rows: int, stop_after: int) -> None:
    source = NexmarkSource(events=6_000, seed=5)
    first = _reader(source, read_rows=read_rows)
    before = list(itertools.islice(_polls(first, now=0), stop_after))
    second = _reader(source, read_rows=read_rows)
    second.seek({read.partition: read.stop for read in before})
    assert _sorted([*before, *_drain(second)]) == _expected(source)


def test_rereading_gives_the_same_rows_and_checksum_and_continues_after_them() -> None:
    source = NexmarkSource(events=20_000)
    reads = _drain(_reader(source, read_rows=700))
    replacement = _reader(source, read_rows=64)
    again = [replacement.reread(read.partition, read.start, read.stop) for read in reads[:9]]
    assert again == reads[:9]
    after = replacement.poll(0)
    assert isinstance(after, Read)
    assert (after.partition, after.start) == (reads[9].partition, reads[9].start)


def test_checksums_differ_by_seed_and_range() -> None:
    sources = [NexmarkSource(events=20_000, seed=seed) for seed in (1, 2)]
    checksums = [read.checksum for source in sources for read in _drain(_reader(source, read_rows=100))]
    assert len(set(checksums)) == len(checksums)


def test_the_checksum_does_not_depend_on_the_requested_columns() -> None:
    source = NexmarkSource(events=5_000)
    narrow = _drain(_reader(source, columns=(("id",), (), ("price", "auction"))))
    assert [read.checksum for read in narrow] == [read.checksum for read in _drain(_reader(source))]
    assert narrow[0].rows[0].schema.names == ["id"]  # type: ignore[union-attr]
    assert narrow[0].rows[2].schema.names == ["price", "auction"]  # type: ignore[union-attr]


def test_a_read_beyond_the_stream_is_refused() -> None:
    with pytest.raises(SourceError, match="partition 0 of the generated events has no read"):
        _reader(NexmarkSource(events=100)).reread(0, 40, 5_000)


def test_the_last_read_of_each_partition_is_marked_also_when_it_is_repeated() -> None:
    reads = _drain(_reader(NexmarkSource(events=3_333), read_rows=40))
    assert sorted(read.partition for read in reads if read.last) == list(range(8))
    again = _reader(NexmarkSource(events=3_333))
    assert [again.reread(*read[:3]).last for read in reads] == [read.last for read in reads]


def test_a_paced_source_keeps_its_rate() -> None:
    reader = _reader(NexmarkSource(events=100_000, rate=10_000))
    per_second = [0] * 11
    for now, read in _at_pace(reader, now=NOW):
        per_second[(now - NOW) // 1_000_000] += read.events
        assert now - 2_000 <= read.due_us <= now
    assert per_second[:10] == pytest.approx([10_000] * 10, rel=0.03)


def test_a_paced_reader_that_was_interrupted_catches_up_with_the_schedule() -> None:
    source = NexmarkSource(events=100_000, rate=10_000)
    before = [read for now, read in _at_pace(_reader(source), now=NOW) if now < NOW + 2_000_000]
    restored, replayed = _reader(source), _reader(source)
    restored.seek({read.partition: read.stop for read in before})
    assert [replayed.reread(*read[:3]) for read in before] == before
    for replacement in (restored, replayed):
        at_once = sum(read.events for read in _due(replacement, now=NOW + 5_000_000))
        assert sum(read.events for read in before) + at_once == pytest.approx(50_000, rel=0.02)


def test_reads_that_catch_up_are_small_enough_to_have_a_marker_for_every_delay() -> None:
    reader = _reader(NexmarkSource(events=1_000_000, rate=10_000))
    reader.poll(NOW)
    due_us = [read.due_us for read in _due(reader, now=NOW + 5_000_000)]
    assert max(later - earlier for earlier, later in itertools.pairwise(due_us)) <= 100_000
    assert due_us[-1] - due_us[0] >= 4_800_000


def test_the_schedule_begins_with_the_first_poll_and_is_the_same_for_all_tasks() -> None:
    source = NexmarkSource(events=100_000, rate=10_000)
    answers = [_reader(source, index, 2).poll(NOW - 3_000 * index) for index in range(2)]
    assert answers == [Wait(NOW + 20_000)] * 2


def test_an_offset_contains_the_events_read_and_the_time_of_the_first() -> None:
    place = SourcePosition(12_345).begun(NOW)
    assert SourcePosition.at(place.offset, paced=True) == place
    assert place.began_us == NOW
    assert place.begun(NOW + 50_000_000) == place
    assert SourcePosition(12_345).offset == 12_345


def test_a_definition_survives_pickling() -> None:
    source = NexmarkSource(events=1_000, rate=5.0)
    assert cloudpickle.loads(cloudpickle.dumps(source)) == source


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": 0},
        {"events": 5, "rate": -1.0},
        {"events": 5, "rate": math.nan},
        {"events": 5, "rate": math.inf},
        {"events": 5, "event_rate": 0},
    ],
)
def test_an_impossible_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="needs a number above 0"):
        NexmarkSource(**wrong)


def _reader(
    source: NexmarkSource,
    index: int = 0,
    parallelism: int = 1,
    read_rows: int | None = None,
    columns: tuple[tuple[str, ...] | None, ...] = ALL,
) -> StripeReader:
    reader = source.create(columns, read_rows)
    reader.open(index, parallelism)
    reader.seek({})
    return reader


def _drain(reader: StripeReader) -> list[Read]:
    return _due(reader, now=0)


def _due(reader: StripeReader, now: int) -> list[Read]:
    return list(_polls(reader, now))


def _polls(reader: StripeReader, now: int) -> Iterator[Read]:
    while isinstance(read := reader.poll(now), Read):
        yield read


def _at_pace(reader: StripeReader, now: int) -> list[tuple[int, Read]]:
    """Polls as a task would: at once after a read, else at the time that the source gave."""
    reads = []
    while not isinstance(answer := reader.poll(now), End):
        if isinstance(answer, Wait):
            assert answer.until > now
            now = answer.until
        else:
            reads.append((now, answer))
    return reads


def _sorted(reads: list[Read]) -> list[list[tuple[object, ...]]]:
    schemas = (PERSON, AUCTION, BID)
    kinds = [[rows for read in reads if (rows := read.rows[kind]) is not None] for kind in range(3)]
    return [_rows(pa.Table.from_batches(rows, schema)) for rows, schema in zip(kinds, schemas, strict=True)]


def _expected(source: NexmarkSource) -> list[list[tuple[object, ...]]]:
    pieces = list(Generator(source.seed).events(0, source.events))
    return [_rows(pa.Table.from_batches([piece[kind] for piece in pieces])) for kind in range(3)]


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
