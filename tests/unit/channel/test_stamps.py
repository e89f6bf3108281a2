"""Stamps of the communication-induced protocol: whole, as differences, damaged, and how small they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.bench.stamps import traffic
from clonos_py.channel.stamps import HmnrStamp, StampReader, StampWriter, packed
from clonos_py.model.errors import CodecError
from tests.checkpoint_histories import drawn_history

TASKS = 20
counts = st.integers(0, 300)
masks = st.integers(0, 2**TASKS - 1)
stamps = st.builds(HmnrStamp, counts, masks, masks, st.lists(counts, min_size=TASKS, max_size=TASKS).map(tuple))


@given(stamps)
def test_a_whole_stamp_is_read_back(stamp: HmnrStamp) -> None:
    assert HmnrStamp.decode(stamp.encode(), TASKS) == stamp


@given(st.lists(stamps, max_size=5))
def test_stamps_of_any_order_are_read_back_on_one_connection(some: list[HmnrStamp]) -> None:
    writer, reader = StampWriter(), StampReader(TASKS)
    assert [reader.read(writer.write(stamp)) for stamp in some] == some


def test_stamps_of_real_histories_are_read_back_and_only_the_first_is_whole() -> None:
    for seed in range(100):
        history = drawn_history(seed)
        for wire in history.wires:
            writer, reader = StampWriter(), StampReader(len(history.tasks))
            travelled = [writer.write(stamp) for stamp in wire.stamps]
            assert [reader.read(data) for data in travelled] == wire.stamps
            assert [data[:1] == b"\x01" for data in travelled] == [not place for place in range(len(travelled))]


def test_a_connection_that_begins_later_reads_the_same_stamps() -> None:
    """A frame is sent again on another connection with the stamp that it was given when it was cut."""
    history = drawn_history(5, steps=300)
    wire = max(history.wires, key=lambda wire: len(wire.stamps))
    assert len(set(wire.stamps)) > 3
    for begin in range(len(wire.stamps)):
        writer, reader = StampWriter(), StampReader(len(history.tasks))
        assert [reader.read(writer.write(stamp)) for stamp in wire.stamps[begin:]] == wire.stamps[begin:]


def test_a_stamp_equal_to_the_one_before_takes_no_bytes() -> None:
    writer, reader = StampWriter(), StampReader(3)
    stamp = HmnrStamp(4, 0b101, 0b001, (1, 2, 3))
    assert writer.write(stamp) == b"\x01\x03\x04\x05\x01\x01\x02\x03"
    assert writer.write(stamp) == b""
    assert reader.read(b"\x01\x03\x04\x05\x01\x01\x02\x03") == reader.read(b"") == stamp


BEFORE = HmnrStamp(4, 0b1, 0, (1,) * TASKS)


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_a_stamp_or_raise_codec_error(data: bytes, after_another: bool) -> None:
    reader = StampReader(TASKS)
    if after_another:
        reader.read(StampWriter().write(BEFORE))
    try:
        stamp = reader.read(data)
    except CodecError:
        return
    assert HmnrStamp.decode(stamp.encode(), TASKS) == stamp


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x00", "flags 0 describe no difference"),
        (b"\x80", "do not encode the growth of 20 counts"),
        (b"\x80\xff\xff\xff", "do not encode the growth of 20 counts"),
        (b"\x80\x00\x00\x80", "do not encode the growth of 20 counts"),
        (b"\x80\x00\x00\x00\x00", "do not encode the growth of 20 counts"),
        (b"\x03\x01", "flags 3 describe no difference"),
        (b"\x02", "too few bytes"),
        (b"\x02\x00", "0 is out of range"),
        (b"\x02\x01\x01", "trailing bytes"),
        (b"\x02\x81\x00", "shortest encoding"),
        (b"\x02" + b"\xff" * 12, "too large"),
        (b"\x04\xff", "no vector of 20 tasks"),
        (b"\x04\x00\x00\x10", "no vector of 20 tasks"),
        (b"\x08\x01\x14", "task 20 of 20"),
        (b"\x40\x01\x28", "task 20 of 20"),
        (b"\x01\x13", "19 tasks where there are 20"),
        (b"\x01" + BEFORE.encode() + b"\x00", "trailing bytes"),
        (b"\x01" + BEFORE.encode()[:-1], "too few bytes"),
    ],
)
def test_a_damaged_stamp_is_refused_with_a_reason(data: bytes, said: str) -> None:
    reader = StampReader(TASKS)
    reader.read(StampWriter().write(BEFORE))
    with pytest.raises(CodecError, match=said):
        reader.read(data)


def test_counts_that_grow_take_a_bit_each_and_a_bit_for_each_step() -> None:
    writer, reader = StampWriter(), StampReader(TASKS)
    reader.read(writer.write(BEFORE))
    grown = HmnrStamp(4, 0b1, 0, (1, 2, 3, *(2,) * (TASKS - 3)))
    data = writer.write(grown)
    assert len(data) == 1 + (TASKS + 20 + 7) // 8
    assert reader.read(data) == grown


def test_a_difference_needs_a_stamp_before_it() -> None:
    with pytest.raises(CodecError, match="a difference without a stamp before it"):
        StampReader(TASKS).read(b"")


def test_a_refused_stamp_changes_nothing() -> None:
    reader = StampReader(TASKS)
    reader.read(StampWriter().write(BEFORE))
    with pytest.raises(CodecError):
        reader.read(b"\x02\x01\x01")
    assert reader.read(b"") == BEFORE


def test_a_vector_takes_a_bit_for_each_task() -> None:
    assert len(packed(0, 250)) == 32


# ---- size


WORKERS = [10, pytest.param(50, marks=pytest.mark.thorough)]


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("workers", WORKERS)
def test_at_20_frames_a_second_a_stamp_takes_at_most_a_tenth_of_plain_vectors(workers: int, cyclic: bool) -> None:
    measured = traffic(workers, 20, 7, cyclic)
    assert measured.frames >= 800
    assert measured.travelled <= measured.plain / 10


@pytest.mark.parametrize("workers", WORKERS)
def test_at_2_frames_a_second_a_stamp_takes_at_most_a_tenth_of_a_whole_one(workers: int) -> None:
    measured = traffic(workers, 2, 15)
    assert measured.frames >= 400
    assert measured.travelled <= measured.whole / 10


@pytest.mark.parametrize("workers", WORKERS)
def test_at_2_frames_a_second_in_a_busy_cycle_a_stamp_takes_at_most_half_of_plain_vectors(workers: int) -> None:
    """There every checkpoint forces one of nearly every other task, so that all counts change all the time."""
    measured = traffic(workers, 2, 15, cyclic=True)
    assert measured.forced > 10 * measured.local
    assert measured.travelled <= measured.plain / 2
