from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.causal.determinants import (
    Abort,
    Answer,
    Completion,
    Determinant,
    Linger,
    Merged,
    Order,
    Refusal,
    Seed,
    SourceEnd,
    SourceIdle,
    SourceRead,
    Time,
    TimerFired,
    Trigger,
    decode,
    encode,
    length,
)
from clonos_py.model.errors import CodecError

int64 = st.integers(-(2**63), 2**63 - 1)
plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
determinants: st.SearchStrategy[Determinant] = st.one_of(
    st.builds(Order, st.integers(0, 2**31), st.integers(1, 2**40)),
    st.builds(Time, int64),
    st.builds(Seed, st.integers(0, 2**64 - 1)),
    st.builds(TimerFired, st.integers(0, 1_000), int64),
    st.builds(Linger),
    st.builds(Trigger, int64),
    st.builds(Abort, int64),
    st.builds(SourceRead, st.integers(0, 10_000), int64, int64, st.integers(0, 2**64 - 1)),
    st.builds(SourceEnd),
    st.builds(SourceIdle, st.integers(0, 10_000)),
    st.builds(Answer, st.text(), plain),
    st.builds(Refusal, st.text(), st.text()),
    st.builds(Merged, st.integers(0, 2**31), st.integers(1, 2**31)),
    st.builds(Completion, st.integers(0, 100), int64, plain, st.none() | st.text()),
)


@given(st.lists(determinants, max_size=20))
def test_decoding_gives_back_what_was_encoded(some: list[Determinant]) -> None:
    assert decode(encode(some)) == some


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_decode_or_raise_the_codecs_own_error(data: bytes) -> None:
    try:
        decode(data)
    except CodecError:
        return


@given(st.lists(determinants, min_size=1, max_size=5), st.data())
def test_damaged_bytes_decode_or_raise_the_codecs_own_error(some: list[Determinant], data: st.DataObject) -> None:
    wire = bytearray(encode(some))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(wire[: data.draw(st.integers(at, len(wire)))]))
    except CodecError:
        return


def test_a_hostile_nesting_raises_the_codecs_own_error() -> None:
    with pytest.raises(CodecError):
        decode(b"\x91\x93\x0a\xa1k" + b"\x91" * 100_000 + b"\x00")


def test_an_empty_run_of_arrivals_is_refused() -> None:
    with pytest.raises(CodecError, match="shorter than one"):
        decode(encode([Order(0, 0)]))
    with pytest.raises(CodecError, match="shorter than one"):
        decode(encode([Merged(0, 0)]))


def test_an_answer_that_is_not_plain_data_is_refused() -> None:
    with pytest.raises(CodecError, match="plain data"):
        encode([Answer("x", object())])


def test_a_run_of_arrivals_covers_as_many_offsets_as_frames() -> None:
    assert [length(d) for d in (Order(3, 7), Linger(), Time(1))] == [7, 1, 1]
