"""Frames in storage: their bytes, which of them are needed, and damage."""

from __future__ import annotations

import re
import struct

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.checkpoint.chunks import Scratch
from clonos_py.checkpoint.frames import add, between, decode
from clonos_py.model.errors import CheckpointError
from clonos_py.model.snapshots import FrameRecord, FrameRun, StoredFrames

SCHEMA = pa.record_batch({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}).schema


def run(start: int, *row_counts: int | None) -> FrameRun:
    """A run with a frame for each number of rows; None: a frame without a body."""
    bodies = [None if rows is None else batch(rows).serialize() for rows in row_counts]
    records = [
        FrameRecord(seq, 0, 2, -5, False, 0, b"stamp", rows or 0, body.size if body else 0)
        for seq, (rows, body) in enumerate(zip(row_counts, bodies, strict=True), start)
    ]
    return FrameRun(SCHEMA, records, bodies)


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(rows)), pa.array(["x" * (n % 9) for n in range(rows)])], schema=SCHEMA)


def stored(found: FrameRun) -> bytes:
    scratch = Scratch()
    add(found, scratch)
    return bytes(scratch.content())


def read(content: bytes) -> FrameRun:
    return decode(pa.py_buffer(content), xxhash.xxh3_64_intdigest(content), "there")


@given(st.integers(0, 1 << 60), st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=12))
def test_a_run_is_read_back_as_it_was_written(start: int, row_counts: list[int | None]) -> None:
    written = run(start, *row_counts)
    found = read(stored(written))
    assert (found.schema, found.records, found.bodies) == (SCHEMA, written.records, written.bodies)
    for rows, body in zip(row_counts, found.bodies, strict=True):
        assert body is None or pa.ipc.read_record_batch(body, found.schema).equals(batch(rows or 0))


def test_several_runs_are_stored_one_after_the_other() -> None:
    scratch, written = Scratch(), [run(0, 3), run(7, None, 30_000), run(9, 1)]
    places = [add(found, scratch) for found in written]
    content = bytes(scratch.content())
    for found, (offset, size_bytes, checksum) in zip(written, places, strict=True):
        part = decode(pa.py_buffer(content[offset : offset + size_bytes]), checksum, "there")
        assert (part.records, part.bodies) == (found.records, found.bodies)


def test_a_part_of_a_run_can_be_selected() -> None:
    whole = run(3, 1, 2, None, 4)
    part = between(whole, StoredFrames("place", 4, 6, 2))
    assert ([record.seq for record in part.records], part.bodies) == ([4, 5], list(whole.bodies)[1:3])
    assert between(whole, StoredFrames("place", 3, 7, 7)) is whole


@pytest.mark.parametrize(("start", "stop"), [(2, 5), (4, 8), (7, 9), (0, 2), (5, 5)])
def test_a_part_with_missing_frames_is_an_error(start: int, stop: int) -> None:
    expected = f"place: frames [{start}, {stop}) are to be there, it has [3, 7); restore the file"
    with pytest.raises(CheckpointError, match=re.escape(expected)):
        between(run(3, 1, 2, None, 4), StoredFrames("place", start, stop, 0))


def test_a_flipped_bit_is_detected() -> None:
    content = bytearray(stored(run(0, 5, None)))
    checksum = xxhash.xxh3_64_intdigest(content)
    content[len(content) // 2] ^= 1
    with pytest.raises(CheckpointError, match=r"there is corrupt: its checksum differs; .*--fresh"):
        decode(pa.py_buffer(content), checksum, "there")


@given(st.data())
def test_a_run_that_is_cut_short_cannot_be_decoded(data: st.DataObject) -> None:
    whole = stored(run(0, 5, None, 7))
    with pytest.raises(CheckpointError, match="there cannot be decoded"):
        read(whole[: data.draw(st.integers(0, len(whole) - 64))])


@given(st.binary(max_size=200))
def test_any_bytes_as_a_run_raise_a_checkpoint_error(content: bytes) -> None:
    for candidate in (content, struct.pack("<I", len(content)) + content, struct.pack("<I", 2) + b"\x92\xc4" + content):
        with pytest.raises(CheckpointError, match="there cannot be decoded"):
            read(candidate)
