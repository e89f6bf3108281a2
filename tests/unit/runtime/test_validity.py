"""Bodies of frames that are no valid batch: refused without harm, for any defect."""

from __future__ import annotations

import random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.model.errors import CodecError
from clonos_py.runtime.ray.wire_codec import decode_frame, encode_header
from clonos_py.runtime.transport.batches import decode_batch, encode_batch
from clonos_py.runtime.transport.validity import check_batch

FIELDS: dict[str, pa.DataType] = {
    "number": pa.int64(),
    "money": pa.decimal128(18, 2),
    "flag": pa.bool_(),
    "text": pa.string(),
    "large": pa.large_string(),
    "bytes": pa.binary(),
    "texts": pa.list_(pa.string()),
    "pairs": pa.map_(pa.string(), pa.int32()),
    "parts": pa.struct([("text", pa.string()), ("nothing", pa.null())]),
}
SCHEMA = pa.schema(FIELDS)
FEW, MANY = 20, 3_000


def sample(rows: int, letters: str = "abc äß日") -> pa.RecordBatch:
    chance = random.Random(rows)

    def word() -> str:
        return "".join(chance.choices(letters, k=chance.randrange(9)))

    def row() -> dict[str, Any]:
        found: dict[str, Any] = {
            "number": chance.randrange(1 << 40),
            "money": chance.randrange(10_000),
            "flag": chance.random() < 0.5,
            "text": word(),
            "large": word(),
            "bytes": chance.randbytes(chance.randrange(5)),
            "texts": [word() for _ in range(chance.randrange(3))],
            "pairs": [(word(), 1)],
            "parts": {"text": word(), "nothing": None},
        }
        return {name: None if chance.random() < 0.1 else value for name, value in found.items()}

    return pa.RecordBatch.from_pylist([row() for _ in range(rows)], SCHEMA)


def is_refused_or_valid(body: bytes, schema: pa.Schema) -> bool:
    """Whether it was refused; an accepted body is read completely."""
    try:
        batch = decode_batch(pa.py_buffer(body), schema)
    except CodecError:
        return True
    batch.validate(full=True)
    batch.to_pylist()
    return False


def of_text(rows: int, *texts: bytes, kind: pa.DataType | None = None) -> pa.RecordBatch:
    """A column that claims to be text, the last rows of it ``texts``."""
    kind = kind or pa.string()
    wide = pa.types.is_large_string(kind)
    raw = pa.array([b"x"] * (rows - len(texts)) + list(texts), pa.large_binary() if wide else pa.binary())
    return pa.record_batch({"text": pa.Array.from_buffers(kind, rows, raw.buffers())})


@pytest.mark.parametrize("rows", [0, 1, FEW, MANY, 5 * MANY])
@pytest.mark.parametrize("letters", ["abc", "abc äß日"])
def test_valid_batches_are_accepted_unchanged(rows: int, letters: str) -> None:
    batch = sample(rows, letters)
    assert decode_batch(encode_batch(batch), SCHEMA).equals(batch)


def test_a_flipped_bit_in_a_body_is_refused_or_leaves_a_valid_batch() -> None:
    body = encode_batch(sample(FEW)).to_pybytes()
    refused = 0
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 1 << random.Random(position).randrange(8)
        refused += is_refused_or_valid(bytes(damaged), SCHEMA)
    assert len(body) // 10 < refused < len(body)


@pytest.mark.parametrize("rows", [FEW, MANY])
def test_a_body_with_random_damage_is_refused_or_is_a_valid_batch(rows: int) -> None:
    body = encode_batch(sample(rows)).to_pybytes()
    refused = 0
    for seed in range(200):
        chance = random.Random(seed)
        damaged = bytearray(body)
        for _ in range(chance.randrange(1, 5)):
            position = chance.randrange(chance.choice([64, 2_000, len(body)]))
            damaged[position] = chance.choice([0, 127, 128, 255, chance.randrange(256)])
        cut = chance.choice([len(damaged), len(damaged), chance.randrange(len(damaged))])
        refused += is_refused_or_valid(bytes(damaged[:cut]), SCHEMA)
    assert 50 < refused < 200


@pytest.mark.parametrize("rows", [FEW, MANY])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("texts", [[b"\xff"], [b"\xc3", b"\xa4"], [b"\xe6\x97", b"\xa5"], ["ä".encode(), b"\x80"]])
def test_text_that_is_not_utf8_is_refused(rows: int, kind: pa.DataType, texts: list[bytes]) -> None:
    """Also where a character is cut between two rows, so that all of them together are UTF-8."""
    batch = of_text(rows, *texts, kind=kind)
    with pytest.raises(CodecError, match="UTF8"):
        decode_batch(encode_batch(batch), batch.schema)


def test_binary_columns_need_not_be_utf8() -> None:
    batch = pa.record_batch({"bytes": [b"\xff\x80"] * MANY})
    assert decode_batch(encode_batch(batch), batch.schema).equals(batch)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [FEW, MANY])
@pytest.mark.parametrize(("row", "offset"), [(7, 1), (7, 1 << 30), (7, -4), (-1, 1 << 30), (0, -8)], ids=str)
def test_offsets_that_decrease_or_point_outside_are_refused(rows: int, wide: bool, row: int, offset: int) -> None:
    offsets = np.arange(0, 4 * rows + 1, 4, dtype=np.int64 if wide else np.int32)
    honest = offsets.tobytes()
    offsets[row] = offset
    batch = pa.record_batch({"text": pa.array(["four"] * rows, pa.large_string() if wide else pa.string())})
    body = encode_batch(batch).to_pybytes()
    assert body.count(honest) == 1
    with pytest.raises(CodecError):
        decode_batch(pa.py_buffer(body.replace(honest, offsets.tobytes())), batch.schema)


@pytest.mark.parametrize("rows", [FEW, MANY])
def test_a_wrong_number_of_nulls_is_refused(rows: int) -> None:
    column = pa.array([None, *["x"] * (rows - 1)])
    lying = pa.Array.from_buffers(pa.string(), rows, column.buffers(), 2)
    with pytest.raises(CodecError, match="null"):
        decode_batch(encode_batch(pa.record_batch({"text": lying})), pa.schema([("text", pa.string())]))


def test_bytes_under_a_null_need_not_be_utf8() -> None:
    hidden = of_text(MANY, b"\xff").column(0)
    mask = pa.array([*[True] * (MANY - 1), False]).buffers()[1]
    column = pa.Array.from_buffers(pa.string(), MANY, [mask, *hidden.buffers()[1:]], 1)
    check_batch(pa.record_batch({"text": column}))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_are_refused_before_they_take_memory(compression: Literal["lz4", "zstd"]) -> None:
    bomb = pa.record_batch({"number": np.zeros(4_000_000, np.int64)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, bomb.schema, options=options) as stream:
        stream.write_batch(bomb)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    body = [messages.read_next_message().serialize() for _ in ("schema", "batch")][1]
    assert body.size < bomb.nbytes / 100
    schema = bomb.schema
    del bomb
    pool = pa.default_memory_pool()
    before = pool.num_allocations()
    with pytest.raises(CodecError, match="its buffers are compressed"):
        decode_batch(body, schema)
    assert pool.num_allocations() == before


def test_other_messages_of_arrow_are_refused() -> None:
    with pytest.raises(CodecError, match="it is not a record batch"):
        decode_batch(SCHEMA.serialize(), SCHEMA)


@pytest.mark.parametrize("body", [b"", b"\xff", b"\xff" * 8, b"\xff" * 4 + bytes(4), b"\xff" * 4 + b"\x08" + bytes(11)])
def test_a_body_too_short_for_a_message_is_refused(body: bytes) -> None:
    with pytest.raises(CodecError, match="is no batch of the edge's schema"):
        decode_batch(pa.py_buffer(body), SCHEMA)


def test_an_array_that_exceeds_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> pa.RecordBatch:
        raise pa.ArrowMemoryError("malloc of size 4611686018427387904 failed")

    monkeypatch.setattr(pa.ipc, "read_record_batch", no_room)
    with pytest.raises(CodecError, match="malloc of size"):
        decode_batch(encode_batch(sample(1)), SCHEMA)


def test_more_rows_than_the_frames_of_an_edge_may_have_are_refused() -> None:
    """Columns of nulls have no content: 1 KB could announce any number of rows."""
    rows = pa.record_batch({"nothing": pa.nulls(100_000)})
    header = encode_header(FrameHeader(7, FrameKind.DATA, 0, 0, False, 0, 100_000, 0, 0, (), []))
    with pytest.raises(CodecError, match="frame 7 announces 100000 rows; frames of this edge have 65536"):
        decode_frame(header, encode_batch(rows), rows.schema, 65_536, False, False)
