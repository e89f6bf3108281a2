"""Values in Avro and back, by columns and one by one."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from clonos_py import Money, Record
from clonos_py.connectors import Avro
from clonos_py.connectors.kafka.avro_schemas import converts_by_column, schema_of
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.model.errors import GraphError
from clonos_py.model.record_codec import encode


class Size(Record):
    width: int
    height: float | None


class Parcel(Record):
    id: int
    at: int
    weight: float
    fragile: bool
    seal: bytes
    note: str | None
    tags: list[str]
    size: Size


class Priced(Record):
    id: int
    price: Money
    note: str | None


PARCELS = encode(
    [
        Parcel(1, 1_700_000_000_123_456, 1.5, True, b"\0\xff", "ä", ["a", ""], Size(3, None)),
        Parcel(-(2**62), 0, -0.0, False, b"", None, [], Size(0, 2.5)),
    ],
    Parcel.schema(),
)
PRICED = encode([Priced(1, Decimal("-1.50"), None), Priced(2, Decimal("1e9"), "x")], Priced.schema())


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "other", "fields": list(fields)})


def written(text: str, *rows: dict[str, Any]) -> list[bytes]:
    """Encoded by another library than that which decodes by columns."""
    parsed = fastavro.parse_schema(json.loads(text))
    made = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        made.append(out.getvalue())
    return made


class Simple(Record):
    id: int
    weight: float | None
    fragile: bool
    note: str | None
    tags: list[str]
    size: Size


SIMPLE = encode(
    [
        Simple(number * 2**40, None if number % 3 else number / 7, number % 2 == 0, "ä" * number, ["a"] * number, size)
        for number, size in enumerate([Size(3, None), Size(0, 2.5), Size(-1, 0.0)] * 3)
    ],
    Simple.schema(),
)
ROWS = {"plain": (SIMPLE, True), "bytes": (PARCELS, False), "decimals": (PRICED, False)}


@pytest.mark.parametrize(("rows", "by_columns"), ROWS.values(), ids=list(ROWS))
def test_encoded_rows_are_decoded_and_equal_those_of_another_library(rows: pa.RecordBatch, by_columns: bool) -> None:
    text = schema_of(rows.schema)
    assert converts_by_column(json.loads(text)) == by_columns
    reading, writing = format_of(Avro(), rows.schema), format_of(Avro(), rows.schema, "topic")
    for some in (rows, rows.slice(1), rows.slice(1, 1), rows.slice(0, 0)):
        values = writing.encode(some)
        assert values == written(text, *some.to_pylist())
        assert reading.decode(values).rows.equals(some)


AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
AT_US = round(AT.timestamp() * 1_000_000)


class Wanted(Record):
    at: int
    day: int | None
    name: str | None


@pytest.mark.parametrize(
    "logical", ["timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-micros"]
)
@pytest.mark.parametrize("more", ["long", {"type": "fixed", "name": "f", "size": 2}], ids=["columns", "one by one"])
def test_times_of_any_unit_become_microseconds(logical: str, more: Any) -> None:
    per_second = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[logical.rpartition("-")[2]]
    fields = [{"name": "at", "type": {"type": "long", "logicalType": logical}}, {"name": "more", "type": more}]
    plain = [{**fields[0], "type": "long"}, fields[1]]
    at = AT_US * per_second // 10**6
    values = written(schema(*plain), {"at": at, "more": 1 if more == "long" else b"ab"})
    form = format_of(Avro(schema=schema(*fields)), Wanted.schema())
    assert form.decode(values).rows.to_pylist() == [{"at": AT_US, "day": None, "name": None}]

    class Timed(Record):
        at: int

    if more == "long":
        writing = format_of(Avro(schema=schema(fields[0])), Timed.schema(), "topic")
        rows = encode([Timed(AT_US)], Timed.schema())
        assert writing.encode(rows) == written(schema(plain[0]), {"at": at})


def test_fields_are_found_by_their_names() -> None:
    text = schema(
        {"name": "name", "type": ["string", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "kinds", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": "int"},
    )
    values = written(
        text, {"name": "n", "kind": "B", "day": 3, "at": 7}, {"name": None, "kind": "A", "day": 0, "at": 8}
    )
    form = format_of(Avro(schema=text), Wanted.schema())
    expected = [{"at": 7, "day": 3, "name": "n"}, {"at": 8, "day": 0, "name": None}]
    assert form.decode(values).rows.to_pylist() == expected


UNION = schema(
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "parts", "type": {"type": "map", "values": ["null", "long", "string"]}},
    {"name": "other", "type": ["null", "long", "string"]},
    {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
)


class Noted(Record):
    id: int
    note: str | None
    number: str


def test_schemas_that_cannot_be_decoded_by_columns_are_read() -> None:
    number = "123e4567-e89b-12d3-a456-426614174000"
    row = {"id": 1, "note": "x", "parts": {"a": None, "b": 2, "c": "d"}, "other": "o", "number": number}
    form = format_of(Avro(schema=UNION), Noted.schema())
    assert form.decode(written(UNION, row)).rows.to_pylist() == [{"id": 1, "note": "x", "number": number}]


BAD = {
    "empty": b"",
    "cut": b"\x02\x04a",
    "a length beyond the end": b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    "a negative length": b"\x02\x03",
    "no UTF-8": b"\x02\x04\xff\xfe",
    "a number too long": b"\xff" * 12,
}


class Plain(Record):
    id: int
    name: str


@pytest.mark.parametrize("value", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("text", [None, schema({"name": "id", "type": "long"}, {"name": "name", "type": "string"},
                                               {"name": "f", "type": {"type": "fixed", "name": "x", "size": 0}})],
                         ids=["columns", "one by one"])  # fmt: skip
def test_a_malformed_value_is_named(value: bytes, text: str | None) -> None:
    form = format_of(Avro(schema=text), Plain.schema())
    good = [b"\2\2a"] * 2
    with pytest.raises(Malformed) as raised:
        form.decode([good[0], value, good[1]])
    assert raised.value.message == 1
    assert str(raised.value)


def test_a_value_without_a_declared_field_is_malformed() -> None:
    text = schema({"name": "id", "type": ["null", "long"]}, {"name": "name", "type": "string"})
    form = format_of(Avro(schema=text), Plain.schema())
    good, null = written(text, {"id": 1, "name": "a"}, {"id": None, "name": "b"})
    with pytest.raises(Malformed, match="'id' is null, but not declared") as raised:
        form.decode([good, null])
    assert raised.value.message == 1
    with pytest.raises(Malformed, match="no field 'name'"):
        format_of(Avro(schema=schema({"name": "id", "type": "long"})), Plain.schema()).decode([b"\2"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "not an Avro schema"),
        ('{"type": "recrd"}', "not an Avro schema"),
        ('"long"', "a schema of a record"),
        (schema({"name": "id", "type": "long"}, {"name": "else", "type": "long"}), "no field 'else'"),
        (schema({"name": "id", "type": "string"}), "'id' is int64, not string"),
        (schema({"name": "id", "type": "bytes"}, {"name": "else", "type": "long"}), "no field 'else'"),
    ],
)
def test_a_schema_that_does_not_fit_the_rows_is_refused(text: str, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        format_of(Avro(schema=text), Plain.schema(), "topic")
