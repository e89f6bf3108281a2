from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.causal.codec import LogCodec, decode, encode
from clonos_py.causal.determinants import (
    Abort,
    Answer,
    Completion,
    Determinant,
    Fed,
    FrameBatch,
    FrameRows,
    InputOrder,
    Landmark,
    Linger,
    LoopEnd,
    PartitionsDiscovered,
    ReadBatch,
    Refusal,
    Seed,
    SourceEnd,
    SourceIdle,
    SourceRead,
    SourceReopened,
    Time,
    TimerFired,
    Trigger,
    length,
)
from clonos_py.model.errors import CodecError

int64 = st.integers(-(2**63), 2**63 - 1)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KINDS: dict[type, st.SearchStrategy[Determinant]] = {
    InputOrder: st.builds(InputOrder, st.integers(0, 2**31), st.integers(1, 2**40)),
    Time: st.builds(Time, int64),
    Seed: st.builds(Seed, st.integers(0, 2**64 - 1)),
    TimerFired: st.builds(TimerFired, st.integers(0, 1_000), int64),
    Linger: st.builds(Linger),
    Trigger: st.builds(Trigger, int64),
    Abort: st.builds(Abort, int64),
    SourceRead: st.builds(SourceRead, st.integers(0, 10_000), int64, int64, st.integers(0, 2**64 - 1), st.booleans()),
    SourceEnd: st.builds(SourceEnd),
    SourceIdle: st.builds(SourceIdle, st.integers(0, 10_000)),
    Answer: st.builds(Answer, st.text(), plain),
    Refusal: st.builds(Refusal, st.text(), st.text()),
    FrameBatch: st.builds(FrameBatch, st.integers(0, 2**31), st.integers(1, 2**31)),
    ReadBatch: st.builds(ReadBatch, st.integers(1, 2**31)),
    Completion: st.builds(Completion, st.integers(0, 100), int64, plain, st.none() | st.text()),
    FrameRows: st.builds(FrameRows, st.integers(0, 2**31), st.integers(1, 2**31)),
    LoopEnd: st.builds(LoopEnd),
    PartitionsDiscovered: st.builds(
        PartitionsDiscovered, st.dictionaries(st.integers(0, 2**31), st.integers(0, 2**63 - 1), max_size=5)
    ),
    Fed: st.just(Fed()),
    SourceReopened: st.builds(SourceReopened, st.text()),
    Landmark: st.builds(Landmark, st.integers(0, 2**31), st.integers(0, 2**63 - 1), st.binary()),
}
determinants: st.SearchStrategy[Determinant] = st.one_of(*KINDS.values())


def test_every_kind_of_determinant_is_generated() -> None:
    assert KINDS.keys() == set(get_args(Determinant))


@given(st.lists(determinants, max_size=20))
def test_decoding_returns_what_was_encoded(some: list[Determinant]) -> None:
    assert decode(encode(some)) == some


arrivals = st.builds(InputOrder, st.integers(0, 3), st.integers(1, 2)) | st.builds(
    FrameBatch, st.integers(0, 3), st.just(2)
)


@given(st.lists(st.lists(arrivals | determinants, max_size=30), max_size=4))
def test_each_segment_is_decoded_after_those_before_it(log: list[list[Determinant]]) -> None:
    writer, reader = LogCodec(), LogCodec()
    for some in log:
        assert reader.decode(writer.encode(some)) == some


@given(st.lists(determinants, max_size=8), st.lists(determinants, max_size=8))
def test_a_codec_that_has_decoded_a_log_can_encode_its_continuation(
    before: list[Determinant], after: list[Determinant]
) -> None:
    reader = LogCodec()
    wire = LogCodec().encode(before)
    reader.decode(wire)
    third = LogCodec()
    third.decode(wire)
    assert third.decode(reader.encode(after)) == after


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_any_bytes_after_valid_segments_decode_or_raise_codec_error(segments: list[bytes]) -> None:
    codec = LogCodec()
    for data in segments:
        try:
            codec.decode(data)
        except CodecError:
            return


numbers = st.integers(-3, 12) | st.integers(-(2**63), 2**64 - 1)


@given(st.lists(numbers | plain, max_size=30))
def test_any_codes_decode_or_raise_codec_error(codes: list[Any]) -> None:
    """Random bytes seldom get past the first code."""
    try:
        decode(msgspec.msgpack.encode(codes))
    except CodecError:
        return


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_codec_error(data: bytes) -> None:
    try:
        decode(data)
    except CodecError:
        return


@given(st.lists(determinants, min_size=1, max_size=5), st.data())
def test_damaged_bytes_decode_or_raise_codec_error(some: list[Determinant], data: st.DataObject) -> None:
    wire = bytearray(encode(some))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(wire[: data.draw(st.integers(at, len(wire)))]))
    except CodecError:
        return


def test_hostile_nesting_raises_codec_error() -> None:
    with pytest.raises(CodecError):
        decode(b"\x91\x93\x0a\xa1k" + b"\x91" * 100_000 + b"\x00")


def test_a_hostile_copy_raises_codec_error() -> None:
    for codes in (
        [0, 1, 4],
        [10, 0, 2, 4],
        [10, 0, 0, 4],
        [10, 0, 1, 1 << 40],
        [3, 0, 1, 4],
        [10, *[0, 1, 1 << 15] * 3],
    ):
        with pytest.raises(CodecError):
            decode(msgspec.msgpack.encode(codes))


def bytes_each(log: list[Determinant], times: int) -> float:
    """The bytes that one more repetition of a pattern takes."""
    return (len(encode(log * times)) - len(encode(log))) / (times - 1) / len(log)


def test_arrivals_from_inputs_in_turn_take_nearly_no_bytes() -> None:
    round_robin: list[Determinant] = [InputOrder(channel, 1) for channel in (0, 1, 2, 3)]
    assert bytes_each(round_robin, 50) < 0.03
    merged: list[Determinant] = [FrameBatch(0, 7), InputOrder(1, 3), InputOrder(2, 1)]
    assert bytes_each(merged, 50) < 0.03


def test_arrivals_in_any_order_take_a_byte_each() -> None:
    random_ = random.Random(1)
    chaos: list[Determinant] = [InputOrder(random_.randrange(40), 1) for _ in range(500)]
    assert len(encode(chaos)) <= 503


def test_reads_that_continue_where_the_last_one_stopped_omit_the_place() -> None:
    reads: list[Determinant] = [SourceRead(n % 3, n // 3 * 100, n // 3 * 100 + 100, 0) for n in range(3_000)]
    assert len(encode(reads)) <= 4 * 3_000 + 3


def test_times_and_timers_are_differences_and_names_are_written_once() -> None:
    now_us = 1_700_000_000_000_000
    log: list[Determinant] = []
    for n in range(100):
        log += [Time(now_us + n * 90), Answer("exchange rates", n), TimerFired(1, now_us + n * 100)]
    assert len(encode(log)) < 100 * (2 + 3 + 3) + 60


def test_a_new_epoch_is_decoded_without_the_one_before() -> None:
    writer = LogCodec()
    writer.encode([Time(1_000), Answer("rates", 1), SourceRead(0, 0, 9, 0)])
    writer.restart(1)
    some: list[Determinant] = [SourceRead(0, 9, 12, 0), Time(1_001), Answer("rates", 2)]
    assert LogCodec(1).decode(writer.encode(some)) == some


def test_an_empty_run_of_arrivals_is_refused() -> None:
    with pytest.raises(CodecError, match="shorter than one"):
        decode(encode([InputOrder(0, 0)]))
    with pytest.raises(CodecError, match="shorter than one"):
        decode(encode([FrameBatch(0, 0)]))
    with pytest.raises(CodecError, match="shorter than one"):
        decode(encode([ReadBatch(0)]))


def test_an_answer_that_is_not_plain_data_is_refused() -> None:
    with pytest.raises(CodecError, match="plain data"):
        encode([Answer("x", object())])


def test_a_run_of_arrivals_covers_as_many_offsets_as_frames() -> None:
    assert [length(d) for d in (InputOrder(3, 7), Linger(), Time(1))] == [7, 1, 1]
