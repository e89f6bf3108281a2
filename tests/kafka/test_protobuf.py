"""Values in Protocol Buffers and back."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Record
from clonos_py.connectors import Protobuf
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.model.errors import GraphError
from clonos_py.model.record_codec import encode
from tests.kafka.protobuf_messages import Line, Order

AT_US = 1_700_000_000_123_456


class Sold(Record):
    id: int
    item: str
    price: float
    note: str | None
    tags: list[str]
    at: int | None
    kind: str


SOLD = [Sold(1, "ä", 1.5, "", ["a", ""], AT_US, "USED"), Sold(-(2**62), "", 0.0, None, [], None, "UNKNOWN")]


def rows() -> pa.RecordBatch:
    return encode(SOLD, Sold.schema())


def messages() -> list[Any]:
    made = Order(id=1, item="ä", price=1.5, note="", tags=["a", ""], kind=2)
    made.at.FromMicroseconds(AT_US)
    return [made, Order(id=-(2**62))]


def test_encoded_rows_are_decoded_and_another_library_reads_them() -> None:
    given = pickle.loads(pickle.dumps(Protobuf(Order)))
    values = format_of(given, Sold.schema(), "topic").encode(rows())
    assert [Order.FromString(value) for value in values] == messages()
    reading = format_of(given, Sold.schema())
    assert reading.decode(values).rows.equals(rows())
    assert reading.decode([value.SerializeToString() for value in messages()]).rows.equals(rows())
    assert reading.decode([]).rows.equals(rows().slice(0, 0))
    for some in (rows().slice(1), rows().slice(0, 0)):
        assert reading.decode(format_of(given, Sold.schema(), "topic").encode(some)).rows.equals(some)


class Half(Record):
    item: str
    id: int


def test_fields_that_rows_lack_keep_their_defaults() -> None:
    half = encode([Half("x", 5)], Half.schema())
    assert [Order.FromString(v) for v in format_of(Protobuf(Order), Half.schema(), "t").encode(half)] == [
        Order(id=5, item="x")
    ]
    assert format_of(Protobuf(Order), Half.schema()).decode([messages()[0].SerializeToString()]).rows.to_pylist() == [
        {"item": "ä", "id": 1}
    ]


def test_a_nested_message_class_can_be_used() -> None:
    class Numbered(Record):
        id: int

    given = Protobuf(Line)
    assert format_of(given, Numbered.schema()).decode([Line(id=3).SerializeToString()]).rows.to_pylist() == [{"id": 3}]


BAD = {"no number of a field": b"\xff", "cut": b"\x08\x03\x12\x05x", "no UTF-8": b"\x12\x02\xff\xfe"}


@pytest.mark.parametrize("value", BAD.values(), ids=list(BAD))
def test_a_malformed_value_is_named(value: bytes) -> None:
    good = messages()[0].SerializeToString()
    with pytest.raises(Malformed) as raised:
        format_of(Protobuf(Order), Sold.schema()).decode([good, value, good])
    assert raised.value.message == 1
    assert str(raised.value)


class NoSuch(Record):
    colour: str


class OfAnotherType(Record):
    id: str


class Nullable(Record):
    id: int | None


class NotNullable(Record):
    note: str


@pytest.mark.parametrize(
    ("record", "topic", "reason"),
    [
        (NoSuch, None, "no field 'colour'"),
        (OfAnotherType, None, "'id' of the message shop.Order is int64, not string"),
        (OfAnotherType, "t", "'id' of the message shop.Order is int64, not string"),
        (NotNullable, None, "'note' of the message shop.Order may be absent: declare"),
        (Nullable, "t", "'id' of the message shop.Order may be absent: make it optional"),
    ],
)
def test_rows_that_do_not_fit_the_message_are_refused(record: type[Record], topic: str | None, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        format_of(Protobuf(Order), record.schema(), topic)


def test_only_a_message_class_is_accepted() -> None:
    with pytest.raises(GraphError, match="no class that protoc has made"):
        Protobuf(Half)
