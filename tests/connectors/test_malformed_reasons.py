"""Why a record is malformed: the reason names the field, its value and the type of the column."""

from __future__ import annotations

import gzip
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Money, Record
from clonos_py.connectors import FileSource
from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.line_formats import CsvLines, JsonLines, TextLines
from clonos_py.connectors.malformed_reasons import reason_in_csv, reason_in_json
from clonos_py.model.errors import SourceError
from tests.connectors.test_malformed import everything, opened, rows


class Place(Record):
    floor: int


class Order(Record):
    id: int
    price: float
    name: str
    paid: bool
    at: datetime
    tags: list[str] | None = None
    place: Place | None = None


class Line(Record):
    id: int
    price: float
    name: str
    paid: bool
    at: datetime


GOOD: dict[str, Any] = {"id": 1, "price": 2.5, "name": "n", "paid": True, "at": "2026-01-31T09:30:00Z"}
TIME = "no ISO 8601 time, such as 2026-01-31T09:30:00Z"
NULL = "is missing or null, but not declared '| None'"


def reason_of_json(line: bytes) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        JsonLines(Order.schema()).parse_isolated(line)
    return str(refused.value)


def reason_of_csv(record: bytes, columns: type[Record]) -> str:
    schema = columns.schema()
    with pytest.raises(ValueError, match=r".") as refused:
        CsvLines(schema, schema.names).parse_isolated(record + b"\n")
    return str(refused.value)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"id": "x"}, "field 'id' is 'x', not a whole number (int)"),
        ({"id": 1.5}, "field 'id' is 1.5, not a whole number (int)"),
        ({"id": True}, "field 'id' is true, not a whole number (int)"),
        ({"id": 10**20}, "field 'id' is 100000000000000000000, which does not fit into 64 bits"),
        ({"id": None}, f"field 'id' {NULL}"),
        ({"price": "2,5"}, "field 'price' is '2,5', not a number (float)"),
        ({"name": 5}, "field 'name' is 5, not text (str)"),
        ({"name": {"first": 1}}, "field 'name' is {...}, not text (str)"),
        ({"name": [[1]]}, "field 'name' is [...], not text (str)"),
        ({"id": int("9" * 300)}, f"field 'id' is {'9' * 60}..., which does not fit into 64 bits"),
        ({"paid": "yes"}, "field 'paid' is 'yes', not true or false (bool)"),
        ({"at": "yesterday"}, f"field 'at' is 'yesterday', {TIME}"),
        ({"at": 5}, f"field 'at' is 5, {TIME}"),
        ({"tags": "a"}, "field 'tags' is 'a', not a list"),
        ({"tags": ["a", 1]}, "field 'tags[1]' is 1, not text (str)"),
        ({"tags": ["a", None]}, f"field 'tags[1]' {NULL}"),
        ({"place": 3}, "field 'place' is 3, not an object"),
        ({"place": {"floor": "x"}}, "field 'place.floor' is 'x', not a whole number (int)"),
        ({"place": {}}, f"field 'place.floor' {NULL}"),
    ],
)
def test_the_field_of_an_object_is_named(other: dict[str, Any], reason: str) -> None:
    assert reason_of_json(json.dumps(GOOD | other).encode()).startswith(reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": 1', "it is not JSON: Expecting ',' delimiter at character 9"),
        (b"{'id': 1}", "it is not JSON: Expecting property name enclosed in double quotes at character 2"),
        (b"[1]", "it is not a JSON object, which begins with '{'"),
        (b'{"id": 1, "id": "x"}', "field 'id' is 'x', not a whole number (int)"),
        (b'{"id": 1}', f"field 'price' {NULL}"),
        (b'{"x": 1, "x": 2, "id": 1}', f"field 'price' {NULL}"),
        (b'{"place": {"floor": 1, "floor": "x"}, "id": 2}', "field 'place.floor' is 'x', not a whole number (int)"),
        (b'{"price": 1e400, "id": 1}', "field 'price' is 1e400, which does not fit into 64 bits"),
        (b'{"id": ' + b"9" * 5_000 + b"}", f"field 'id' is {'9' * 60}..., which does not fit into 64 bits"),
        (b'{"x": ' + b"9" * 5_000 + b', "id": 1}', f"field 'price' {NULL}"),
        (json.dumps(GOOD).encode().replace(b'"n"', b'"\xff"'), "field 'name' is not UTF-8 text"),
        (
            b'{"x": ["a\tb"], "id": 2}',
            r"it is not JSON: the text at character 8 has the character '\t', which JSON has",
        ),
        (b'{"x": [[[["\\x"]]]], "id": 2}', r"it is not JSON: Invalid \escape"),
        (b'{"id": 1}\x0b', "it is not JSON: Extra data at character 10"),
        (b'{"id": 1}{"id": 2}', "a line has more than one object"),
        (b'{"id": 1} \t {"id": 2}', "a line has more than one object"),
    ],
)
def test_a_line_that_is_no_object_is_described(line: bytes, reason: str) -> None:
    assert reason_of_json(line.replace(b'"id": 2}', json.dumps(GOOD).encode()[1:])).startswith(reason)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("x,2.5,n,true,2026-01-31T09:30:00Z", "field 'id' is 'x', not a whole number (int)"),
        ("99999999999999999999,2.5,n,true,2026-01-31T09:30:00Z", "field 'id' is 99999999999999999999, which does not"),
        ("1,x,n,true,2026-01-31T09:30:00Z", "field 'price' is 'x', not a number (float)"),
        ("1,2.5,\xff,true,2026-01-31T09:30:00Z", "field 'name' is not UTF-8 text"),
        ("1,2.5,n,maybe,2026-01-31T09:30:00Z", "field 'paid' is 'maybe', not true or false (bool)"),
        ("1,2.5,n,true,yesterday", f"field 'at' is 'yesterday', {TIME}"),
        (",2.5,n,true,2026-01-31T09:30:00Z", f"field 'id' {NULL}"),
        ("1,2.5,n", "it has 3 fields, but there are 5 columns"),
        ('1,2.5,"n,true,2026-01-31T09:30:00Z', "a quote is not closed"),
    ],
)
def test_the_field_of_a_csv_record_is_named(record: str, reason: str) -> None:
    assert reason_of_csv(record.encode("latin-1"), Line).startswith(reason)


PIECES = [
    *'{}[]:,"\\\t\x0b\x7f',
    '"x"',
    '"id"',
    "1",
    "-1.5",
    "1e999",
    "NaN",
    "null",
    "tru",
    "\\ud800",
    "\\ude00",
    "é",
    " ",
]


@pytest.mark.parametrize(
    "more", ['"x": 1e400', '"x": "\\udc00"', '"\\ud800": {}', '"id": "x", "id": 2', '"place": 1, "place": null']
)
def test_what_is_not_declared_may_be_any_json_and_the_last_value_of_a_name_counts(more: str) -> None:
    line = f"{{{more}, {json.dumps(GOOD)[1:]}".encode()
    (row,) = JsonLines(Order.schema()).parse_isolated(line).to_pylist()
    assert (row["id"], row["place"]) == (1, None)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.integers(0, 9))
def test_a_reason_never_speaks_of_a_row_of_the_parser(other: str, place: int) -> None:
    """Whatever is inserted at some place of a good line."""
    good = '{"id": 1, "x": "text", "y": [2.5, {"z": 1}]}'
    at = place * len(good) // 10
    line = f"{good[:at]}{other}{good[at:]}".encode()
    reason = ""
    try:
        JsonLines(pa.schema([pa.field("id", pa.int64())])).parse_isolated(line)
    except ValueError as refused:
        reason = str(refused)
    assert "in row" not in reason
    assert "rror" not in reason


@pytest.mark.parametrize("frames", [0, 500])
@pytest.mark.parametrize("depth", [1, 30, 940, 970, 1_000, 100_000])
def test_a_field_is_named_at_any_depth_of_nesting_of_its_value(depth: int, frames: int) -> None:
    if frames:
        test_a_field_is_named_at_any_depth_of_nesting_of_its_value(depth, frames - 1)
        return
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        line = b'{"id": %b1%b}' % (opening * depth, closing * depth)
        shown = "{...}" if opening.startswith(b"{") else "[...]"
        assert reason_of_json(line) == f"field 'id' is {shown}, not a whole number (int)"
    assert reason_of_json(b'{"x": %b%b, "id": "]"}' % (b"[" * depth, b"]" * depth)).startswith("field 'id' is ']'")


def test_a_malformed_object_of_many_names_takes_linear_time() -> None:
    names = 30_000
    line = b'{"id": "x", %b}' % b", ".join(b'"k%d": 1' % number for number in range(names))
    started = time.process_time()
    assert reason_of_json(line).startswith("field 'id' is 'x'")
    assert time.process_time() - started < 3


class Sale(Record):
    price: Money
    count: int | None = None
    good: bool | None = None


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        ("1.234", "which has more than 2 decimal places"),
        ("1.2e-2", "which has more than 2 decimal places"),
        ("12345678901234567.8", "which has more than 16 digits before the point"),
        ("1e30", "which has more than 16 digits before the point"),
        ("abc", "not a number"),
        (" 1 x", "not a number"),
    ],
)
def test_the_reason_why_an_amount_of_money_is_malformed_is_named(price: str, reason: str) -> None:
    schema = Sale.schema()
    for line in (f'{{"price": "{price}"}}\n', f'{{"price": {price}}}\n'):
        if line[10] == '"' or price[0] in "1":
            with pytest.raises(ValueError, match=rf"^field 'price' is '?{price}'?, {reason}$"):
                JsonLines(schema).parse_isolated(line.encode())
    with pytest.raises(ValueError, match=rf"^field 'price' is '{price}', {reason}$"):
        CsvLines(schema, schema.names).parse_isolated(f"{price},1,true\n".encode())
    for good in (b"1.230", b"0.00", b"100e-2", b"1234567890123456.10"):
        assert CsvLines(schema, schema.names).parse_isolated(good + b",1,true\n").num_rows == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("1,+1,true", "field 'count' is '+1', not a whole number (int)"),
        ('1,"",true', "field 'count' is '', and a quoted empty value is not null"),
        (',"",', "field 'count' is '', and a quoted empty value is not null"),
        (f"1,{'9' * 90},true", f"field 'count' is {'9' * 60}..., which does not fit into 64 bits"),
        ("1, 2 ,tRue", "field 'good' is 'tRue', not true or false (bool)"),
        ('1,2,"true', "a quote is not closed"),
        ('1,"2,true', "a quote is not closed"),
        ('x,"2,true', "a quote is not closed"),
    ],
)
def test_the_reason_quotes_the_value_as_it_is_written(record: str, reason: str) -> None:
    assert reason_of_csv(record.encode(), Sale) == reason


def test_a_byte_order_mark_before_the_first_object_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'\xef\xbb\xbf{"floor": 1}\n{"floor": 2}\n')
    (read,) = everything(opened(FileSource(str(tmp_path / "in.jsonl"), Place, on_error="skip")))
    assert rows([read]) == [{"floor": 1}, {"floor": 2}]
    (tmp_path / "in.jsonl").write_bytes(b'\xef\xbb\xbf{"floor": "x"}')
    with pytest.raises(
        SourceError, match=r"line 1 \(byte 3\): malformed record: field 'floor' is 'x', not a whole number"
    ):
        everything(opened(FileSource(str(tmp_path / "in.jsonl"), Place)))
    with pytest.raises(
        ValueError, match=r"^it begins with a byte order mark, which may only stand at the start of a file"
    ):
        JsonLines(Place.schema()).parse_isolated(b'\xef\xbb\xbf{"floor": 1}')


def test_a_line_of_invalid_bytes_is_no_text() -> None:
    with pytest.raises(ValueError, match=r"^it is not UTF-8 text$"):
        TextLines(pa.schema([("line", pa.string())])).parse_isolated(b"\xff\n")


def test_several_records_at_once_have_no_reason() -> None:
    assert reason_in_json(b'{"id": "x"}\n{"id": "y"}\n', Order.schema()) is None
    assert reason_in_csv(b"x,2.5\ny,2.5\n", Line.schema(), Line.schema().names) is None


@pytest.mark.parametrize("other", [{}, {"place": None}, {"tags": None}, {"place": {"floor": 1}}, {"tags": ["a"]}])
def test_nested_fields_that_may_be_null_may_be_absent(other: dict[str, Any]) -> None:
    found = JsonLines(Order.schema()).parse(json.dumps(GOOD | other).encode()).to_pylist()[0]
    assert (found["tags"], found["place"]) == (other.get("tags"), other.get("place"))
    assert JsonValues(Order.schema()).parse([json.dumps(GOOD | other).encode()]).schema == Order.schema()


def test_a_valid_record_has_no_reason() -> None:
    assert reason_in_json(json.dumps(GOOD).encode(), Order.schema()) is None
    assert reason_in_csv(b"1,2.5,n,true,2026-01-31T09:30:00Z\n", Line.schema(), Line.schema().names) is None


def test_errors_of_files_and_of_messages_contain_the_reason(tmp_path: Path) -> None:
    lines = [json.dumps(GOOD), json.dumps(GOOD | {"id": "x"}), json.dumps(GOOD)]
    (tmp_path / "orders.jsonl").write_text("\n".join(lines) + "\n")
    expected = "field 'id' is 'x', not a whole number"
    with pytest.raises(SourceError, match=rf"orders\.jsonl, line 2 .*: malformed record: {expected}"):
        everything(opened(FileSource(str(tmp_path / "orders.jsonl"), Order)))
    with pytest.raises(ValueError, match=expected):
        JsonValues(Order.schema()).parse([lines[1].encode()])


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.txt"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b'{"floor": 1}\n', mtime=0), "; the file is compressed by gzip: decompress it"),
        ('floor\n{"floor": 1}\n'.encode("utf-16"), "; the file is UTF-16: convert it to UTF-8"),
        (b"PAR1\x15\xff\n", "; the file is Parquet: give format='parquet'"),
    ],
    ids=["gzip", "UTF-16", "Parquet"],
)
def test_a_file_that_is_no_text_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError) as refused:
        everything(opened(FileSource(str(tmp_path / name), None if name.endswith("txt") else Place)))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("floor;x", "it has floor;x; columns are separated by commas"),
        ("floor\tx", r"it has floor\tx; columns are separated by commas"),
        ("level,x", "it has level, x"),
    ],
)
def test_another_separator_is_named(header: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"{header}\n1;2\n")
    with pytest.raises(SourceError) as refused:
        everything(opened(FileSource(str(tmp_path / "in.csv"), Place)))
    assert str(refused.value).endswith(said)


def test_an_object_over_several_lines_is_named() -> None:
    assert reason_of_json(b"{\n").endswith("at character 2: write each object on one line")
