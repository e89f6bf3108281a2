"""Objects decoded by msgspec equal those of Arrow's reader."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Record
from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.line_formats import JsonLines


class Plain(Record):
    number: int
    share: float
    word: str | None
    good: bool


class Other(Record):
    number: int
    words: list[str]


ROWS = st.fixed_dictionaries(
    {
        "number": st.integers(-(2**63), 2**63 - 1),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "good": st.booleans(),
    },
    optional={"word": st.none() | st.text(), "other": st.lists(st.integers(0, 9))},
)


@given(st.lists(ROWS))
def test_rows_are_those_of_the_arrow_reader(rows: list[dict[str, Any]]) -> None:
    values = [json.dumps(row).encode() for row in rows]
    made = JsonValues(Plain.schema()).parse(values)
    assert made.equals(JsonLines(Plain.schema()).parse(b"\n".join(values)))
    made.validate(full=True)


ODD = [
    *(b"NaN", b"Infinity", b"1e400", b"1e-400", b"-0.0", b"01", b"+1", b".5", b"5.", b"nul", b'"1"', b"[1]", b"true"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"1.0", b"1e2", b"null", b'"\xff"'),
    *(b'"\\ud83d"', b'"\\ud83d\\ude00"', b'"a\tb"', b'"a\\u0000b"', b'""', b"1}{"),
]


@pytest.mark.parametrize("before", [[], [b'{"number": 1}']], ids=["first", "behind-an-object"])
@pytest.mark.parametrize("null", [b"null", b" null", b"\nnull ", b"\tnull\r"])
def test_null_is_no_object_and_does_not_end_the_process(before: list[bytes], null: bytes) -> None:
    schema = pa.schema([pa.field("number", pa.int64())])
    with pytest.raises(ValueError, match="null is not a JSON object"):
        JsonValues(schema).parse([*before, null])
    with pytest.raises(ValueError, match="null is not a JSON object"):
        JsonLines(schema).parse(b"\n".join([*before, null]))


NULLS_BEHIND_MARKS = """
import pyarrow as pa
from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.line_formats import JsonLines
from clonos_py.connectors.malformed import OnError, RequestedColumns
from clonos_py.connectors.webhook_source import PostParser

schema = pa.schema([pa.field("number", pa.int64())])
posts = PostParser(RequestedColumns(schema, ("number",), OnError.FAIL))

def complaint(parse, value):
    try:
        return str(parse(value))
    except ValueError as error:
        return str(error)

for mark in (b"\\xef\\xbb\\xbf", b"\\xef", b"\\xbb", b"\\xbf", b"\\xef\\xbf", b"\\xbb\\xbf"):
    for null in (mark + b"null", mark + b" null", mark + b"\\t\\rnull "):
        for parse, value in ((JsonLines(schema).parse, null), (JsonValues(schema).parse, [null]), (posts.parse, null)):
            assert "null is not a JSON object" in complaint(parse, value), (value, complaint(parse, value))
"""


def test_null_after_a_byte_order_mark_or_a_part_of_it_does_not_end_the_process() -> None:
    made = subprocess.run([sys.executable, "-c", NULLS_BEHIND_MARKS], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")


@pytest.mark.parametrize("value", [b'{"number": ' + b"[" * 100_000, b'{"number":' * 100_000, b"[" * 100_000])
def test_an_unfinished_deep_value_is_malformed(value: bytes) -> None:
    schema = pa.schema([pa.field("number", pa.int64())])
    with pytest.raises(ValueError, match="JSON"):
        JsonValues(schema).parse([value])
    with pytest.raises(ValueError, match="JSON"):
        JsonLines(schema).parse(value)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.bool_()], ids=str)
@pytest.mark.parametrize("value", ODD)
def test_values_that_msgspec_refuses_have_the_outcome_of_the_arrow_reader(
    value: bytes, kind: pa.DataType, nullable: bool
) -> None:
    schema = pa.schema([pa.field("field", kind, nullable)])
    content = b'{"field": %b}' % value
    assert outcome(JsonValues(schema), [content]) == outcome(JsonLines(schema), content)


def outcome(reader: JsonValues | JsonLines, content: Any) -> Any:
    try:
        rows = reader.parse(content)
    except ValueError:
        return "refused"
    return "refused" if rows.num_rows != 1 else repr(rows.to_pylist())


def test_other_columns_and_values_with_line_breaks_are_read() -> None:
    values = [b'{"number": 1,\n "words": ["a"]}', b'\xef\xbb\xbf{"number": 2, "words": []}']
    rows = [{"number": 1, "words": ["a"]}, {"number": 2, "words": []}]
    assert JsonValues(Other.schema()).parse(values).to_pylist() == rows
    assert JsonValues(Other.schema()).parse(values[::-1]).to_pylist() == rows[::-1]
    assert JsonValues(Other.schema()).parse(values[:1]).to_pylist() == rows[:1]
    assert JsonValues(Other.schema()).parse([]).num_rows == 0
    assert JsonValues(Plain.schema()).parse([]).num_rows == 0


@pytest.mark.parametrize(
    "values",
    [
        *([b""], [b'{"number": 1} {"number": 2}', b" "], [b'{"number": 1}', b""]),
        *([b'{"number":', b'1}{"number": 2}'], [b'{"words": [', b']}{"number": 2}', b'{"number": 1}{"number": 3}']),
    ],
)
def test_a_value_must_be_exactly_one_object(values: list[bytes]) -> None:
    schema = pa.schema([pa.field("number", pa.int64(), False)])
    with pytest.raises(ValueError, match=r"not one JSON object|more than one object|not JSON"):
        JsonValues(schema).parse(values)


@pytest.mark.parametrize("around", [b"", b"\n", b"  \n\r\n"])
def test_a_line_with_two_objects_is_malformed(around: bytes) -> None:
    schema = pa.schema([("number", pa.int64())])
    one = b'{"number": 1}'
    assert JsonLines(schema).parse(around + one + b"\n" + one + around).num_rows == 2
    with pytest.raises(ValueError, match="more than one object"):
        JsonLines(schema).parse(around + one + b"\n" + one + one + b"\n" + around)


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (b'{"number": 1, "number": 2}', {"number": 2}),
        (b'{"number": 2, "other": 1e400}', {"number": 2}),
        (b'{"number": 2, "other": NaN}', {"number": 2}),
        (b'{"number": 1, "number": 2, "other": [1e400, NaN, "\\ud800"]}', {"number": 2}),
        (b'{"number": "x"}', None),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 2_000])
@pytest.mark.parametrize("refused", [[], [b'{"number": 3, "number": "x"}'], [b'{"number": 3, "other": [1e400, Inf]}']])
def test_the_outcome_of_a_value_does_not_depend_on_its_neighbours(
    value: bytes, taken: dict[str, int] | None, count: int, refused: list[bytes]
) -> None:
    """Of these, msgspec refuses some and Arrow's reader others."""
    values = JsonValues(pa.schema([pa.field("number", pa.int64(), False)]))
    neighbours = [b'{"number": 7}'] * count
    if taken is None or refused:
        bad = value if taken is None else refused[0]
        with pytest.raises(ValueError, match=r"."):
            values.parse([bad])
        with pytest.raises(ValueError, match=r"."):
            values.parse([*neighbours, value, *refused])
    if taken is not None:
        found = [values.parse([*neighbours, value, *more]) for more in ([], [b'{"number": 8, "other": NaN}'])]
        assert [rows.to_pylist()[count] for rows in found] == [taken, taken]
