"""Why a record of JSON or CSV is malformed, for people: the field, its value, and what its column wants.

Arrow's parsers decide whether a record is malformed; they give columns by number and types by their own names. Here one
record that they refused is read once more. Where that finds nothing, what Arrow said remains.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.connectors.written_times import as_text, as_written, is_written_otherwise, read_times, what_is_wanted

MISSING = "is missing or null, but not declared '| None'"
NO_TEXT = "no UTF-8 text"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_SHOWN_LENGTH_MAX = 60


class _Wanted(NamedTuple):
    """What a type of columns wants: which type it is, in words, and the types of Python that JSON's values have."""

    is_type: Callable[[pa.DataType], bool]
    words: str
    values: tuple[type, ...]


_WANTED = (
    _Wanted(pa.types.is_boolean, "true or false (bool)", (bool,)),
    _Wanted(pa.types.is_integer, "a whole number (int)", (int,)),
    _Wanted(pa.types.is_floating, "a number (float)", (int, float)),
    _Wanted(pa.types.is_decimal, "a number", (int, float, str)),
    _Wanted(pa.types.is_string, "text (str)", (str,)),
    _Wanted(pa.types.is_list, "a list", (list,)),
    _Wanted(pa.types.is_struct, "an object", (dict,)),
)


def of_json(line: bytes, schema: pa.Schema) -> str | None:
    """Of one line; None for several of them, and where nothing is found."""
    if b"\n" in line.rstrip():
        return None
    repeated: list[str] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(name for number, name in enumerate(names) if name in names[:number])
        return dict(pairs)

    try:
        found = json.loads(line.decode(), object_pairs_hook=made)
    except UnicodeDecodeError:
        return None
    except RecursionError:
        return "it is nested too deep"
    except json.JSONDecodeError as error:
        return f"it is no JSON: {error.msg} at character {error.pos + 1}"
    if not isinstance(found, dict):
        return "it is no JSON object, which begins with '{'"
    return _of_object(found, schema, "") or (f"field {repeated[0]!r} is there twice" if repeated else None)


def of_csv(record: bytes, schema: pa.Schema, names: Sequence[str]) -> str | None:
    """Of one record, the fields of which have these names; None for several of them, and where nothing is found."""
    text = record.decode(errors="surrogateescape")
    records = csv.reader(io.StringIO(text, newline=""))
    try:
        values, *others = records
    except (csv.Error, ValueError):
        return None
    if others:
        return None
    if len(values) != len(names):
        return f"it has {len(values)} fields, but there are {len(names)} columns"
    by_name = dict(zip(names, values, strict=True))
    complaints = (_of_text(by_name[field.name], field) for field in schema)
    return next((complaint for complaint in complaints if complaint), None)


def _wanted(kind: pa.DataType) -> _Wanted | None:
    return next((wanted for wanted in _WANTED if wanted.is_type(kind)), None)


def _of_object(found: dict[str, Any], fields: Iterable[pa.Field[Any]], path: str) -> str | None:
    complaints = (_of_value(found.get(field.name), field, path + field.name) for field in fields)
    return next((complaint for complaint in complaints if complaint), None)


def _of_value(value: Any, field: pa.Field[Any], path: str) -> str | None:
    if value is None:
        return None if field.nullable else f"field {path!r} {MISSING}"
    if is_written_otherwise(field):
        return _of_time(value, field, path)
    kind: Any = field.type
    wanted = _wanted(kind)
    if wanted is None:
        return None
    if type(value) not in wanted.values:
        return _misfit(path, value, wanted.words)
    if pa.types.is_integer(kind):
        return _of_integer(value, kind, path)
    if pa.types.is_list(kind):
        complaints = (_of_value(one, kind.value_field, f"{path}[{number}]") for number, one in enumerate(value))
        return next((complaint for complaint in complaints if complaint), None)
    return _of_object(value, list(kind), f"{path}.") if pa.types.is_struct(kind) else None


def _of_integer(value: int, kind: pa.DataType, path: str) -> str | None:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return _misfitting_integer(path, value, kind)
    return None


def _misfitting_integer(path: str, value: int | str, kind: pa.DataType) -> str:
    return f"field {path!r} is {value}, which does not fit into {kind.bit_width} bits"


def _of_time(value: Any, field: pa.Field[Any], path: str) -> str | None:
    written = as_written(pa.schema([field])).field(0)
    kinds = str if pa.types.is_string(written.type) else (int, float)
    try:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError(f"{value!r} is of another type")
        read_times(pa.array([value if isinstance(value, str) else Decimal(repr(value))], written.type), field)
    except ValueError:  # as Arrow's errors are
        return f"field {path!r} is {_shown(value)}, {what_is_wanted(field)}"
    return None


def _of_text(value: str, field: pa.Field[Any]) -> str | None:
    """Of a value of CSV; a missing one is found where all columns are looked at."""
    if not value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"field {field.name!r} is {NO_TEXT}"
    try:
        text = pa.array([value], pa.string())
        if is_written_otherwise(field):
            read_times(text.cast(as_text(pa.schema([field])).field(0).type), field)
        else:
            text.cast(field.type)
    except pa.ArrowException:
        if pa.types.is_integer(field.type) and _INTEGER.fullmatch(value):
            return _misfitting_integer(field.name, value, field.type)
        wanted = _wanted(field.type)
        return _misfit(field.name, value, wanted.words if wanted else str(field.type))
    except ValueError as error:  # of a time, which it names
        return str(error)
    return None


def _misfit(path: str, value: Any, wanted: str) -> str:
    return f"field {path!r} is {_shown(value)}, not {wanted}"


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, str) else json.dumps(value)
    return shown if len(shown) <= _SHOWN_LENGTH_MAX else f"{shown[:_SHOWN_LENGTH_MAX]}..."
