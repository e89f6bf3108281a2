"""Explains to users why a record of JSON or CSV is malformed: the field, its value, and what its column takes.

Arrow's parsers name columns by number and types by Arrow's names. This module reads one record that they refused a
second time. If it finds nothing, Arrow's message is used. Of JSON they refuse more than Python does; ``declared_json``
gives what they take.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.connectors.written_times import as_text, as_written, is_written_otherwise, read_times, what_is_expected
from clonos_py.model.errors import sound

MISSING = "is missing or null, but not declared '| None'"
NO_TEXT = "not UTF-8 text"
MORE_THAN_ONE = "a line has more than one object"
_EXTRA_DATA = "Extra data"
"""What Python's decoder says of text behind a value, at the first character that is no blank."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_FIELD_OF_CSV = re.compile(r'((?:"(?:[^"]|"")*")?[^,\r\n]*)(?:,|\r?\n?\Z)')
_BOOLEANS = ("1", "true", "True", "TRUE", "0", "false", "False", "FALSE")
"""The values that Arrow's CSV parser accepts."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_DIGITS_MAX = 20
_SHOWN_LENGTH_MAX = 60
_DEPTH_MAX = 100
"""Python's decoder reads records of this depth as a whole, however deep the stack is."""
_FLOATS = {16: "<e", 32: "<f", 64: "<d"}
"""The formats of ``struct``, by width in bits."""


class _Whole(str):
    """A JSON number without fraction and exponent, as written: Python refuses to convert very long ones."""

    __slots__ = ()


class _Fraction(str):
    """Any other JSON number, as written."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """A JSON object. Of a name that is there more than once the last value counts, as everywhere."""

    __slots__ = ()


class _Expected(NamedTuple):
    """The values that a kind of column takes: a test for the column's type, a description, and the Python types of
    matching JSON values."""

    is_type: Callable[[pa.DataType], bool]
    words: str
    values: tuple[type, ...]


_EXPECTED = (
    _Expected(pa.types.is_boolean, "true or false (bool)", (bool,)),
    _Expected(pa.types.is_integer, "a whole number (int)", (_Whole,)),
    _Expected(pa.types.is_floating, "a number (float)", (_Whole, _Fraction)),
    _Expected(pa.types.is_decimal, "a number", (_Whole, _Fraction, str)),
    _Expected(pa.types.is_string, "text (str)", (str,)),
    _Expected(pa.types.is_list, "a list", (list,)),
    _Expected(pa.types.is_struct, "an object", (_Object,)),
)


def reason_in_json(line: bytes, schema: pa.Schema) -> str | None:
    """The reason why one line is malformed; None for several lines, and if nothing is found."""
    text = _text_of(line)
    if text is None:
        return None
    is_whole = _is_shallow(text)
    depth_max = 1 + max((_depth(field.type) for field in schema), default=0)
    try:
        found = _decode(text if is_whole else _without_inner(text, depth_max))
    except json.JSONDecodeError as error:
        if error.msg == _EXTRA_DATA and text[error.pos] == "{":
            return MORE_THAN_ONE
        over_lines = ": write each object on one line" if text in ("{", "[") else ""
        return f"it is not JSON: {error.msg} at character {error.pos + 1}{over_lines}" if is_whole else None
    if not isinstance(found, _Object):
        return "it is not a JSON object, which begins with '{'"
    return _of_object(found, schema, "") or _of_tokens(text) or _of_bytes(line)


def declared_json(line: bytes, schema: pa.Schema) -> bytes | None:
    """The object on a line that has no reason to be malformed, with nothing but the fields that the schema names, each
    of them once. None for several lines, and for an object nested too deep for Python.

    Arrow's parser refuses more: a name that is there twice, and, also in fields that it does not read, half of a
    surrogate pair and a number beyond the range of floats."""
    text = _text_of(line)
    if text is None or not _is_shallow(text):
        return None
    return _written_object(_decode(text), schema).encode()


def is_of_parser_only(problem: ValueError) -> bool:
    """Whether Arrow's parser complains of something that need not be malformed, see ``declared_json``."""
    return _OF_PARSER_ONLY.search(str(problem)) is not None


_OF_PARSER_ONLY = re.compile(r"specified twice|Number too big|surrogate pair in string is invalid")


def has_unusual_constant(line: bytes) -> bool:
    """Whether a line of JSON has a constant that Arrow's parser takes and Python does not: Inf, -Inf or -NaN."""
    return any(not found.group().startswith(b'"') for found in _STRING_OR_CONSTANT.finditer(line))


_STRING_OR_CONSTANT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-NaN|Inf(?!inity)', re.DOTALL)


def has_large_numbers(content: bytes, width: int) -> bool:
    """Whether JSON has a number that a float of this width in bits does not hold. Arrow's parser makes it infinite."""
    numbers = (found.group().decode() for found in _STRING_OR_LARGE.finditer(content) if found.lastgroup)
    return any(_is_too_big(number, width) for number in numbers)


_STRING_OR_LARGE = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?P<large>[0-9]+(?:\.[0-9]*)?[eE]\+?[0-9]+|[0-9]{5,})', re.DOTALL
)


def _text_of(line: bytes) -> str | None:
    """The text of one line; None for several. Bytes that are no text are replaced by halves of surrogate pairs."""
    line = line.rstrip(b" \t\r\n")  # a position at the end is the same with and without a line end
    return None if b"\n" in line else line.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")


def _of_tokens(text: str) -> str | None:
    """The first text of the record, also of a field that is not read, that is not JSON."""
    for found in _STRING.finditer(text):
        token, at = found.group(), f"at character {found.start() + 1}"
        if control := _CONTROL.search(token):
            return (
                f"it is not JSON: the text {at} has the character {control.group()!r}, which JSON has as an escape only"
            )
        try:
            json.loads(token)
        except json.JSONDecodeError as error:
            return f"it is not JSON: {error.msg} in the text {at}"
    return None


def _of_bytes(line: bytes) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"it is {NO_TEXT}: the byte {line[error.start]:#04x} at byte {error.start + 1}"
    return None


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_CONTROL = re.compile(r"[\0-\x1f]")
_decode = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Whole, parse_float=_Fraction, parse_constant=_Fraction, strict=False
).decode
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def _written_object(found: Mapping[str, Any], fields: Iterable[pa.Field[Any]]) -> str:
    written = (f"{json.dumps(f.name)}:{_written(found[f.name], f.type)}" for f in fields if f.name in found)
    return f"{{{','.join(written)}}}"


def _written(value: Any, kind: Any) -> str:
    """A value that fits the type as JSON; numbers as they were written."""
    inner = [kind.field(number) for number in range(kind.num_fields)]
    if isinstance(value, _Object):
        return _written_object(value, inner)
    if isinstance(value, list):
        return f"[{','.join(_written(one, inner[0].type if inner else kind) for one in value)}]"
    return value if isinstance(value, _Whole | _Fraction) else json.dumps(value)


def _depth(kind: pa.DataType) -> int:
    """The nesting depth of values of the type."""
    return 1 + max((_depth(kind.field(number).type) for number in range(kind.num_fields)), default=0)


def in_words(problem: ValueError) -> str:
    """What Arrow's JSON parser says of one line, where nothing was found: its rows mean nothing to a user."""
    return _OF_ARROW.sub(r"it is not JSON: \1", str(problem))


_OF_ARROW = re.compile(r"\AJSON parse error: (.*?)\.? in row [0-9]+\Z", re.DOTALL)


def _brackets(text: str) -> int:
    return text.count("[") + text.count("{")


def _is_shallow(text: str) -> bool:
    """Whether Python's decoder reads it as a whole."""
    return _brackets(text) <= _DEPTH_MAX or _without_inner(text, _DEPTH_MAX) is text


def _without_inner(text: str, depth_max: int) -> str:
    """The JSON with empty lists and objects below a depth: Python's decoder would use the stack for them."""
    if _brackets(text) <= depth_max:
        return text
    kept: list[str] = []
    depth = at = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        token = found.group()
        if token in ("[", "{"):
            depth += 1
            if depth == depth_max + 1:
                kept.append(text[at : found.end()])
        elif token in ("]", "}"):
            depth -= 1
            if depth == depth_max:
                at = found.start()
    if depth > depth_max:
        return "".join(kept)
    return "".join([*kept, text[at:]]) if kept else text


def reason_in_csv(record: bytes, schema: pa.Schema, names: Sequence[str]) -> str | None:
    """The reason why one record is malformed; None for several records, and if nothing is found."""
    text = record.decode(errors="surrogateescape")
    records = csv.reader(io.StringIO(text, newline=""))
    try:
        values = next(records)
        if next(records, None) is not None:
            return None
    except (csv.Error, ValueError, StopIteration):
        return None
    if len(values) != len(names):
        return f"it has {len(values)} fields, but there are {len(names)} columns"
    by_name = dict(zip(names, values, strict=True))
    quoted = [name for name, raw in zip(names, _FIELD_OF_CSV.findall(text), strict=False) if raw == '""']
    reasons = (_of_text(by_name[field.name], field, field.name in quoted) for field in schema)
    return next((reason for reason in reasons if reason), None)


def _expected(kind: pa.DataType) -> _Expected | None:
    return next((expected for expected in _EXPECTED if expected.is_type(kind)), None)


def _of_object(found: _Object, fields: Iterable[pa.Field[Any]], path: str) -> str | None:
    for field in fields:
        name = path + field.name
        if reason := _of_value(found.get(field.name), field, name):
            return reason
    return None


def _of_value(value: Any, field: pa.Field[Any], path: str) -> str | None:
    if value is None:
        return None if field.nullable else f"field {path!r} {MISSING}"
    if is_written_otherwise(field):
        return _of_time(value, field, path)
    kind: Any = field.type
    expected = _expected(kind)
    if expected is None:
        return None
    if type(value) not in expected.values:
        return _misfit(path, value, expected.words)
    if pa.types.is_integer(kind):
        return None if _fits(value, kind) else _misfitting_number(path, value, kind)
    if pa.types.is_floating(kind):
        return _misfitting_number(path, value, kind) if _is_too_big(value, kind.bit_width) else None
    if pa.types.is_string(kind):
        return _of_characters(value, path)
    if pa.types.is_decimal(kind):
        return _of_decimal(value, value, kind, path)
    if pa.types.is_list(kind):
        reasons = (_of_value(one, kind.value_field, f"{path}[{number}]") for number, one in enumerate(value))
        return next((reason for reason in reasons if reason), None)
    return _of_object(value, list(kind), f"{path}.") if pa.types.is_struct(kind) else None


def _fits(digits: str, kind: pa.DataType) -> bool:
    """Whether an integer fits into a type. Leading zeros are ignored: CSV may have them, JSON does not."""
    value = digits.lstrip("+-").lstrip("0") or "0"
    if len(value) > _INTEGER_DIGITS_MAX:
        return False
    whole = -int(value) if digits.startswith("-") else int(value)
    if pa.types.is_unsigned_integer(kind):
        return 0 <= whole < 1 << kind.bit_width
    return -(1 << kind.bit_width - 1) <= whole < 1 << kind.bit_width - 1


def _of_characters(value: str, path: str) -> str | None:
    """Bytes that are no text are halves of surrogate pairs here; some of these may have been written as escapes."""
    if sound(value) == value:
        return None
    escape = any(not 0xDC80 <= ord(half) <= 0xDCFF for half in _HALF.findall(value))
    return f"field {path!r} is {NO_TEXT}{': it has half of a surrogate pair' if escape else ''}"


_HALF = re.compile("[\ud800-\udfff]")


def _is_too_big(number: str, width: int) -> bool:
    """Whether a number is finite, and infinite as a float of this width in bits."""
    found = float(number)
    if math.isinf(found):
        return "inf" not in number.lower()
    try:
        struct.pack(_FLOATS[width], found)
    except OverflowError:
        return True
    return False


def _misfitting_number(path: str, value: str, kind: pa.DataType) -> str:
    return f"field {path!r} is {_shortened(value)}, which does not fit into {kind.bit_width} bits"


def _of_time(value: Any, field: pa.Field[Any], path: str) -> str | None:
    written = as_written(pa.schema([field])).field(0)
    kinds = (str,) if pa.types.is_string(written.type) else (_Whole, _Fraction)
    try:
        if type(value) not in kinds:
            raise ValueError(f"{_shown(value)} is of another type")
        read_times(pa.array([value if type(value) is str else Decimal(value)], written.type), field)
    except ValueError:  # Arrow's errors are ValueErrors, too
        return f"field {path!r} is {_shown(value)}, {what_is_expected(field)}"
    return None


def _of_text(value: str, field: pa.Field[Any], quoted: bool) -> str | None:
    """Checks a value of CSV; missing values are found elsewhere, with all columns at hand. ``quoted``: it is a quoted
    empty text."""
    if not value:
        typed = not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
        return f"field {field.name!r} is '', and a quoted empty value is not null" if quoted and typed else None
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"field {field.name!r} is {NO_TEXT}"
    if is_written_otherwise(field):
        return _of_time_in_text(value, field)
    if pa.types.is_decimal(field.type):
        return _of_decimal(value, value.strip(" \t"), field.type, field.name)
    if pa.types.is_boolean(field.type):
        return None if value in _BOOLEANS else _misfit(field.name, value, "true or false (bool)")
    numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    number = value.strip(" \t") if numeric else value
    try:
        pa.array([number], pa.string()).cast(field.type)
        if pa.types.is_floating(field.type) and _is_too_big(number, field.type.bit_width):
            return _misfitting_number(field.name, value, field.type)
    except pa.ArrowException:
        whole = pa.types.is_integer(field.type) and _INTEGER.fullmatch(number)
        if whole and not _fits(number, field.type):
            return _misfitting_number(field.name, value, field.type)
        expected = _expected(field.type)
        return _misfit(field.name, value, expected.words if expected else str(field.type))
    return None


def _of_time_in_text(value: str, field: pa.Field[Any]) -> str | None:
    try:
        read_times(pa.array([value], pa.string()).cast(as_text(pa.schema([field])).field(0).type), field)
    except ValueError as error:  # its message names the value
        return str(error)
    return None


def _of_decimal(value: str, number: str, kind: Any, path: str) -> str | None:
    if not _NUMBER.fullmatch(number):
        return _misfit(path, value, "a number")
    _, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).lstrip("0")
    last = written.rstrip("0")
    if not last:
        return None
    if exponent + len(written) - len(last) < -kind.scale:
        return f"field {path!r} is {_shown(value)}, which has more than {kind.scale} decimal places"
    digits_max = kind.precision - kind.scale
    if exponent + len(written) > digits_max:
        return f"field {path!r} is {_shown(value)}, which has more than {digits_max} digits before the point"
    return None


def _misfit(path: str, value: Any, expected: str) -> str:
    return f"field {path!r} is {_shown(value)}, not {expected}"


def _shown(value: Any) -> str:
    """The value as text. The content of lists and objects is left out, since it may be nested to any depth."""
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        return "[...]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _shortened(repr(value) if type(value) is str else str(value))


def _shortened(shown: str) -> str:
    return shown if len(shown) <= _SHOWN_LENGTH_MAX else f"{shown[:_SHOWN_LENGTH_MAX]}..."
