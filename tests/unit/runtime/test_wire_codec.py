"""Frames and acknowledgements on the wire: which changes checksums detect, that both ends agree, what is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.link.instructions import Acknowledgement, SnapshotPosition
from clonos_py.model.errors import CodecError
from clonos_py.model.ids import LogId
from clonos_py.model.segments import Reach
from clonos_py.runtime.ray.wire_codec import WireCodec, decode_ack, decode_feed, decode_frame, encode_ack, encode_header

ROWS = 65_536
PAGE_ROWS = 4_096 // 8
CODEC = WireCodec()


def batch(values: np.ndarray, rows: int = ROWS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": values[:rows], "m": np.zeros(rows, np.int64)})


def checksum(values: np.ndarray, sampled: bool, rows: int = ROWS) -> int:
    return CODEC.checksum(CODEC.encode(batch(values, rows)), sampled)


def changed(row: int) -> np.ndarray:
    values = np.arange(ROWS)
    values[row] += 1
    return values


@pytest.mark.parametrize("row", [0, 1_000, 12_345, ROWS - 1])
def test_one_changed_value_changes_the_checksum(row: int) -> None:
    assert checksum(changed(row), sampled=False) != checksum(np.arange(ROWS), sampled=False)


@pytest.mark.parametrize("rows", [1, 100, 2 * PAGE_ROWS])
def test_a_small_body_is_checked_as_a_whole_even_if_samples_are_allowed(rows: int) -> None:
    calm = checksum(np.arange(ROWS), True, rows)
    assert calm == checksum(np.arange(ROWS), False, rows)
    assert all(checksum(changed(row), True, rows) != calm for row in {0, rows // 2, rows - 1})


def test_samples_detect_another_order_another_row_count_and_a_change_everywhere() -> None:
    calm = checksum(np.arange(ROWS), True)
    assert calm == checksum(np.arange(ROWS), True)
    others = [np.random.default_rng(0).permutation(ROWS), np.arange(ROWS)[::-1].copy(), np.arange(ROWS) + 1]
    assert all(checksum(other, True) != calm for other in others)
    assert checksum(np.arange(ROWS), True, ROWS - 1) != calm


def test_samples_detect_a_change_that_spans_eight_pages() -> None:
    for start in range(0, ROWS - 9 * PAGE_ROWS, 5_000):
        values = np.arange(ROWS)
        values[start : start + 8 * PAGE_ROWS] += 1
        assert checksum(values, True) != checksum(np.arange(ROWS), True)


@pytest.mark.parametrize("sampled", [False, True])
def test_the_receiver_computes_the_checksum_of_the_sender(sampled: bool) -> None:
    rows = batch(np.arange(ROWS))
    body = CODEC.encode(rows)
    made = CODEC.checksum(body, sampled)
    header = encode_header(FrameHeader(7, FrameKind.DATA, 0, 0, False, 0, ROWS, 0, made, (), []))
    assert decode_frame(header, body, rows.schema, ROWS, True, sampled)[1].rows == rows
    damaged = bytearray(body)
    damaged[:8_192] = bytes(8_192)
    with pytest.raises(CodecError, match="frame 7 was damaged on its way"):
        decode_frame(header, pa.py_buffer(bytes(damaged)), rows.schema, ROWS, True, sampled)


def test_an_acknowledgement_is_read_back() -> None:
    acknowledgement = Acknowledgement(3, [Reach(LogId(1), 0, 2)], 4, 2, 5, SnapshotPosition(6, 7))
    assert decode_ack(encode_ack(acknowledgement)) == acknowledgement


@pytest.mark.parametrize(
    "forged", [(1, [], 0, 0), (1, [], 0, 0, (0, 0), 0), (1, "logs", 0, 0, (0, 0)), "acknowledged", b"\xc1"]
)
def test_bytes_that_are_no_acknowledgement_are_refused(forged: object) -> None:
    data = forged if isinstance(forged, bytes) else msgspec.msgpack.encode(forged)
    with pytest.raises(CodecError, match="an acknowledgement cannot be read"):
        decode_ack(data)


# ---- the feed of standbys


def feed_header(kind: FrameKind) -> bytes:
    return encode_header(FrameHeader(0, kind, 0, 0, False, 0, 0, 0, 0, (), [], meta=b"meta"))


def test_a_chunk_arrives_with_its_schema() -> None:
    rows = pa.record_batch({"k": pa.array(["a", None, "c"]), "n": pa.array([[1], [], None], pa.list_(pa.int32()))})
    header, found = decode_feed(feed_header(FrameKind.FEED_CHUNK), CODEC.pack(rows.slice(1)))
    assert (header.kind, header.meta) == (FrameKind.FEED_CHUNK, b"meta")
    assert found.equals(rows.slice(1))
    assert found.schema.equals(rows.schema)


def test_a_retained_frame_is_passed_on_as_it_is() -> None:
    body = CODEC.encode(batch(np.arange(ROWS)))
    assert decode_feed(feed_header(FrameKind.FEED_FRAME), body)[1] is body
    assert decode_feed(feed_header(FrameKind.FEED_POINT), None)[1] is None


def test_a_frame_of_a_channel_is_no_part_of_a_feed() -> None:
    with pytest.raises(CodecError, match="a feed brings a frame of kind DATA"):
        decode_feed(feed_header(FrameKind.DATA), None)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 9, 100, 200, 300, -1])
def test_a_chunk_that_is_cut_short_is_refused(cut: int) -> None:
    body = CODEC.pack(batch(np.arange(ROWS), 10))
    with pytest.raises(CodecError):
        decode_feed(feed_header(FrameKind.FEED_CHUNK), pa.py_buffer(body.to_pybytes()[:cut]))


def test_a_chunk_with_changed_bytes_is_refused_or_a_batch() -> None:
    body = CODEC.pack(batch(np.arange(ROWS), 10)).to_pybytes()
    for place in range(len(body)):
        changed_body = body[:place] + bytes([body[place] ^ 0x55]) + body[place + 1 :]
        try:
            _, rows = decode_feed(feed_header(FrameKind.FEED_CHUNK), pa.py_buffer(changed_body))
        except CodecError:
            continue
        rows.validate(full=True)
