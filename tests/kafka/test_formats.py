"""Values of messages to columns and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from clonos_py import Money, Record
from clonos_py.connectors import Avro, Protobuf
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.model.errors import GraphError
from clonos_py.model.record_codec import encode


class Sale(Record):
    id: int
    price: Money
    note: str | None = None


SALES = [Sale(1, Decimal("1.50"), 'a\n"b"'), Sale(2, Decimal("-3"), None), Sale(3, Decimal("0.01"), "")]
ROWS = encode(SALES, Sale.schema())
TEXT = pa.RecordBatch.from_pydict({"value": ["a", "", "ä\n"]})
BYTES = pa.RecordBatch.from_pydict({"value": [b"a", b"", b"\xff"]})


def test_arrow_messages_are_small_enough_for_brokers() -> None:
    rows = pa.record_batch({"number": range(200_000)}, schema=pa.schema([pa.field("number", pa.int64(), False)]))
    form = format_of("arrow", rows.schema)
    values = form.encode(rows)
    assert len(values) > 1
    assert max(map(len, values)) < 600_000
    assert form.decode(values).rows.equals(rows)
    assert form.encode(rows.slice(0, 0)) == []


@pytest.mark.parametrize(("made", "extra"), [(Avro, "avro"), (partial(Protobuf, object), "protobuf")])
def test_a_format_whose_library_is_missing_says_what_to_install(
    made: Callable[[], Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clonos_py.connectors.kafka.formats.find_spec", lambda name: None)
    with pytest.raises(GraphError, match=f"pip install 'clonos-py.{extra}.'"):
        format_of(made(), ROWS.schema)


def test_a_type_that_json_cannot_hold_is_refused_when_the_source_is_defined() -> None:
    schema = pa.schema([("took", pa.list_(pa.duration("us")))])
    with pytest.raises(
        GraphError, match=r"KafkaSource: field 'took' is list<item: duration\[us\]>, which cannot be read"
    ):
        format_of("json", schema)


@pytest.mark.parametrize(
    ("name", "rows"), [("json", ROWS), ("msgpack", ROWS), ("arrow", ROWS), ("text", TEXT), ("bytes", BYTES)]
)
def test_encoded_rows_are_decoded(name: str, rows: pa.RecordBatch) -> None:
    chosen = format_of(name, rows.schema)
    values = chosen.encode(rows)
    assert len(values) == (1 if name == "arrow" else rows.num_rows)
    assert chosen.decode(values).rows == rows
    assert sum(chosen.decode(values).counts or [1] * len(values)) == rows.num_rows


def test_json_may_have_line_breaks_and_other_fields() -> None:
    values = [json.dumps({"id": 1, "price": 2, "note": "x\ny", "more": [1]}, indent=2).encode(), b'{"id":2,"price":1}']
    assert format_of("json", Sale.schema()).decode(values).rows.to_pylist() == [
        {"id": 1, "price": Decimal("2.00"), "note": "x\ny"},
        {"id": 2, "price": Decimal("1.00"), "note": None},
    ]


GOOD: dict[str, bytes] = {
    "json": b'{"id": 1, "price": 1}',
    "msgpack": msgspec.msgpack.encode({"id": 1, "price": "1"}),
    "arrow": format_of("arrow", Sale.schema()).encode(ROWS)[0],
}


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(
            ("json", bad)
            for bad in (b"", b" \n", b"{", b"[]", b"1", b'{"id":1,"price":1}\n{"id":2,"price":1}', b"\xff")
        ),
        *(("json", bad) for bad in (b'{"id":"x","price":1}', b'{"price":1}', b'{"id":null,"price":1}')),
        *(("msgpack", bad) for bad in (b"", b"\xc1", b"\x01", msgspec.msgpack.encode({"id": 1, "price": "x"}))),
        ("msgpack", msgspec.msgpack.encode({"price": "1"})),
        *(("arrow", bad) for bad in (b"", b"junk", GOOD["arrow"][:-20])),
        ("arrow", format_of("arrow", TEXT.schema).encode(TEXT)[0]),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 6])
def test_the_first_message_that_cannot_be_read_is_named(name: str, bad: bytes, before: int) -> None:
    good = GOOD[name]
    with pytest.raises(Malformed) as raised:
        format_of(name, Sale.schema()).decode([good] * before + [bad, good, bad])
    assert raised.value.message == before
    assert str(raised.value)


def test_text_that_is_not_utf_8_is_named() -> None:
    with pytest.raises(Malformed) as raised:
        format_of("text", TEXT.schema).decode([b"a", b"\xff", b"b"])
    assert raised.value.message == 1


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (("text",), [b"x", b"y"]),
        (("id",), [b"1", b"2"]),
        (("id", "text"), [b'{"id":1,"text":"x"}', b'{"id":2,"text":"y"}']),
        ((), [None, None]),
    ],
)
def test_keys_are_made_from_columns(key: tuple[str, ...], wanted: list[Any]) -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "text": "x"}, {"id": 2, "text": "y"}])
    messages = MessageMaker(MessageLayout("t", "json", key), rows.schema).messages(rows)
    assert [message.key for message in messages] == wanted
    assert [json.loads(message.value or b"") for message in messages] == rows.to_pylist()


def test_a_deletion_is_a_tombstone_and_a_column_may_be_the_time() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"id": 1, "at": 5_000, "_change": "insert"}, {"id": 1, "at": 7_999, "_change": "delete"}]
    )
    messages = MessageMaker(MessageLayout("t", "json", ("id",), "at"), rows.schema).messages(rows)
    assert [(m.key, m.value, m.timestamp_ms) for m in messages] == [(b"1", b'{"id":1,"at":5000}', 5), (b"1", None, 7)]
