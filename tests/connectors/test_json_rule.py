"""A line is JSON or not, whatever is declared: files, servers, requests and messages agree with Python's ``json``.

Values that could confuse a parser are drawn into declared and undeclared fields, at the top and inside others.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.line_formats import CsvLines, JsonLines
from clonos_py.connectors.malformed import OnError, RequestedColumns, parsed
from clonos_py.connectors.webhook_source import PostParser
from clonos_py.model.errors import sound

BEYOND = b"9" * 310
ODD = [
    *(b"1", b"-0", b"0.5", b"1E5", b"1e+5", b"0e0", b"2147483648", b"9223372036854775808", BEYOND, b"-" + BEYOND),
    *(BEYOND + b".0", b"99e307", b"-1.8e308", b"1.7e308", b"1e400", b"-1e400", b"1e-400", b"0." + b"0" * 400 + b"1"),
    *(b"01", b"-01", b"1.", b"+1", b"-", b".5", b"1e", b"1e+", b"0x1", b"1_0", b"NaN", b"-NaN", b"nan", b"Inf"),
    *(b"-Inf", b"Infinity", b"-Infinity", b"infinity", b'"Inf"', b'"-NaN"', b'"a: Inf"', b'"1e999"', b'"-0"'),
    *(b"true", b"tru", b"null", b'""', b'"x"', b'"\xc3\xa9"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"'),
    *(b'"\xc3"', b'"a\tb"', b'"\x7f"', b'"\x00"', b'"\\x"', b'"\\u12"', b'"\\u00e9"', b'"\\ud800"', b'"\\udc80"'),
    *(b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b"[]", b"[1,]", b"[,1]", b"[1 2]", b"[1,[2,[3]]]", b'{"x":1}'),
    *(b'{"x":1,}', b'{"x":1,"x":2}', b'{"\xff":1}', b"{1:2}", b"'x'", b"/**/1", b"", b"\xc2\xa01", b" \t1 \r"),
    *(b'{"a":{"a":"\xff"}}', b'[{"a":1e400},"\xff"]', b'"', b"}", b"\\"),
]
VALUES = st.sampled_from(ODD)
INSIDE = st.sampled_from([b"%b", b"%b", b"[%b]", b'{"a":%b}', b'[[1,%b],{"b":2}]'])
NAMES = st.sampled_from([b'"a"', b'"a"', b'"b"', b'"c"', b'"\\u0061"', b'"\xff"', b'"\\ud800"', b'"A"', b"a", b'""'])
LINE = st.sampled_from([b"{%b}"] * 8 + [b"{%b} ", b"{%b}x", b"{%b", b"{%b,}", b"{%b}}"])
KINDS = [pa.float64(), pa.float32(), pa.int64(), pa.string(), pa.bool_(), pa.list_(pa.float64())]


@st.composite
def lines_of_json(draw: st.DrawFn) -> bytes:
    fields = [b"%b:%b" % (draw(NAMES), draw(INSIDE) % draw(VALUES)) for _ in range(draw(st.integers(0, 3)))]
    return draw(LINE) % b",".join(fields)


LINES = lines_of_json()


class Number(NamedTuple):
    text: str


def numbers_as_text(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def converted(value: Any, kind: pa.DataType) -> Any:
    """The value as a column of this type has it. Raises ValueError if it does not fit."""
    if value is None:
        return None
    if pa.types.is_list(kind) and type(value) is list:
        return [converted(one, pa.float64()) for one in value]
    if pa.types.is_floating(kind) and isinstance(value, Number):
        found = pa.scalar(float(value.text)).cast(kind).as_py()
        if abs(found) == float("inf") and "Inf" not in value.text:
            raise ValueError("too big")
        return found
    if pa.types.is_integer(kind) and isinstance(value, Number) and re.fullmatch("-?[0-9]+", value.text):
        if not -(2**63) <= int(value.text) < 2**63:
            raise ValueError("too big")
        return int(value.text)
    if pa.types.is_string(kind) and type(value) is str and sound(value) == value:
        return value
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    raise ValueError("another type")


def expected(line: bytes, kind: pa.DataType) -> str:
    try:
        found = numbers_as_text(line.decode())
        return repr(converted(found.get("a"), kind)) if isinstance(found, dict) else "malformed"
    except (ValueError, RecursionError):
        return "malformed"


def of_messages(values: JsonValues, lines: list[bytes]) -> list[str]:
    found = []
    for line in lines:
        try:
            found.append(repr(values.parse([line]).column(0)[0].as_py()))
        except ValueError:
            found.append("malformed")
    return found


def of_lines(format: JsonLines, lines: list[bytes]) -> list[str]:
    content = b"".join(line + b"\n" for line in lines)
    got = parsed(format, content, format.records(content, whole=True))
    rows = [repr(value) for value in got.rows.column(0).to_pylist()]
    assert all(one.reason and "row" not in one.reason and "\n" not in one.reason for one in got.refused)
    refused = {one.record for one in got.refused}
    return ["malformed" if number in refused else rows.pop(0) for number in range(len(lines))]


@given(st.lists(LINES, min_size=1, max_size=4), st.sampled_from(KINDS))
@example([b'{"a":%b}' % BEYOND, b'{"a":1}'], pa.float64())
@example([b'{"a":Infinity,"b":%b,"c":"1e999"}' % BEYOND, b'{"a":-Infinity}'], pa.float64())
@example([b'{"a":[1,%b]}' % BEYOND], pa.list_(pa.float64()))
@example([b'{"a":3.5e38}', b'{"a":1e39,"a":2}'], pa.float32())
@example([b'{"a":1,"a":2}', b'{"a":"x","a":3,"b":"\xff"}', b'{"a":{"x":[1,,]},"a":3}'], pa.int64())
def test_lines_and_messages_are_those_of_python(lines: list[bytes], kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", kind)])
    right = [expected(line, kind) for line in lines]
    assert of_lines(JsonLines(schema), lines) == right
    assert of_messages(JsonValues(schema), lines) == right
    for line, one in zip(lines, right, strict=True):
        assert of_lines(JsonLines(schema), [line]) == [one]


@given(st.lists(LINES, min_size=1, max_size=3))
def test_what_is_json_does_not_depend_on_what_is_declared(lines: list[bytes]) -> None:
    other = pa.schema([pa.field("other", pa.int64())])
    right = [
        "malformed" if expected(line, pa.null()) == "malformed" and not is_object(line) else "None" for line in lines
    ]
    assert of_lines(JsonLines(other), lines) == right
    assert of_messages(JsonValues(other), lines) == right


def is_object(line: bytes) -> bool:
    try:
        return isinstance(numbers_as_text(line.decode()), dict)
    except ValueError:
        return False


@given(LINES.filter(lambda line: line.endswith(b"}") and line.count(b"{") == line.count(b"}")))
def test_a_request_has_the_row_of_a_line(line: bytes) -> None:
    schema = pa.schema([pa.field("a", pa.float64())])
    post = PostParser(RequestedColumns(schema, ("a",), OnError.FAIL)).parse(line)
    rows = getattr(post, "rows", None)
    assert ["malformed" if rows is None else repr(rows.column(0)[0].as_py())] == of_lines(JsonLines(schema), [line])


def reason(line: bytes, kind: pa.DataType) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        JsonLines(pa.schema([pa.field("a", kind)])).parse_isolated(line)
    return str(refused.value)


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (b'{"a":%b}' % BEYOND, pa.float64(), f"field 'a' is {'9' * 60}..., which does not fit into 64 bits"),
        (b'{"a":[0,-%b.5]}' % BEYOND, pa.list_(pa.float64()), f"field 'a[1]' is -{'9' * 59}..., which does not fit"),
        (b'{"a":1.8e308}', pa.float64(), "field 'a' is 1.8e308, which does not fit into 64 bits"),
        (b'{"a":1e39}', pa.float32(), "field 'a' is 1e39, which does not fit into 32 bits"),
        (b'{"b":"x\xff"}', pa.int64(), "it is not UTF-8 text: the byte 0xff at byte 8"),
        (b'{"b":1,"\xc3":2}', pa.int64(), "it is not UTF-8 text: the byte 0xc3 at byte 9"),
        (b'{"a":"\xff"}', pa.string(), "field 'a' is not UTF-8 text"),
        (b'{"a":"\\ud800"}', pa.string(), "field 'a' is not UTF-8 text: it has half of a surrogate pair"),
        (b'{"b":Inf}', pa.int64(), "it is not JSON: Expecting value at character 6"),
        (b'{"b":[-NaN]}', pa.int64(), "it is not JSON: "),
        (b'{"b":01}', pa.int64(), "it is not JSON: Expecting ',' delimiter at character 7"),
        (b'{"b":"a\tb"}', pa.int64(), "it is not JSON: the text at character 6 has the character '\\t', which JSON"),
    ],
)  # fmt: skip
def test_the_reason_is_named(line: bytes, kind: pa.DataType, said: str) -> None:
    assert reason(line, kind).startswith(said)


NUMBERS = [
    *("1", "1e308", "-1e308", "1e309", "-1e400", "1e400", "9" * 310, "-" + "9" * 310, "1.8e308", "1e-400"),
    *("inf", "-inf", "Infinity", "+inf", "INF", "nan", " inf ", "3.4e38", "3.5e38", "65504", "65520"),
]


@given(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=5), st.sampled_from([pa.float64(), pa.float32()]))
def test_a_number_of_csv_that_a_float_does_not_hold_is_malformed(fields: list[str], kind: pa.DataType) -> None:
    right = []
    for field in fields:
        value = pa.scalar(float(field)).cast(kind).as_py()
        right.append("malformed" if abs(value) == float("inf") and "inf" not in field.lower() else repr(value))
    schema = pa.schema([pa.field("a", kind), pa.field("b", pa.string())])
    format = CsvLines(schema, schema.names)
    content = "".join(f"{field},1e999\n" for field in fields).encode()
    got = parsed(format, content, format.records(content, whole=True))
    rows = [repr(value) for value in got.rows.column(0).to_pylist()]
    refused = {one.record: one.reason for one in got.refused}
    assert ["malformed" if number in refused else rows.pop(0) for number in range(len(fields))] == right
    assert all("which does not fit into" in reason for reason in refused.values())


@pytest.mark.parametrize("odd", [b'"a":0,', b'"b":1e400,', b'"b":"\\ud800",'])
def test_many_objects_that_only_arrow_refuses_are_read_together(odd: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one by one: that would take two milliseconds for each."""
    calls: list[int] = []
    read = JsonLines._parsed

    def counted(self: JsonLines, content: bytes) -> pa.RecordBatch:
        calls.append(content.count(b"\n"))
        return read(self, content)

    monkeypatch.setattr(JsonLines, "_parsed", counted)
    lines = [b'{%b"a":%d}' % (odd, number) for number in range(3_000)]
    assert of_lines(JsonLines(pa.schema([("a", pa.int64())])), lines) == [str(number) for number in range(3_000)]
    assert len(calls) < 60
