"""Rows as Python objects (P1): a class defines a schema.

A ``Record`` is a frozen msgspec struct. Its annotations are its Arrow schema::

    int -> int64, float -> float64, str -> string, bool -> bool, bytes -> binary, datetime -> timestamp("us", "UTC"),
    date -> date32, timedelta -> duration("us"), Instant -> int64 (microseconds UTC), Money -> decimal128(18, 2),
    T | None -> nullable, list[T] -> list, a Record -> struct, Annotated[T, pa.DataType] -> that very Arrow type,
    Annotated[datetime, Epoch("ms")] -> a datetime that text formats have as a number

A column has the name of its field, or the one that ``msgspec.field(name="Order ID")`` gives it.

Rows are decoded from and encoded into record batches by ``clonos_py.model.record_codec``.
"""

from __future__ import annotations

import functools
import keyword
import re
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Protocol, Self, dataclass_transform

import msgspec
import pyarrow as pa

from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names
from clonos_py.model.time_formats import epoch_unit, written_as
from clonos_py.model.times import Duration, micros

Instant = Annotated[int, pa.int64()]
"""A point in time: microseconds since 1970-01-01 UTC."""
Money = Annotated[Decimal, pa.decimal128(18, 2)]
"""An amount with two decimal places, exact. More places are rounded half to even when a row is encoded."""

_UNFIT = re.compile(r'[\x00-\x1f"\\]')
_SCALARS: dict[Any, pa.DataType] = {
    int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_(), bytes: pa.binary(),
    datetime: pa.timestamp("us", "UTC"), date: pa.date32(), timedelta: pa.duration("us"),
}  # fmt: skip


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class RecordMeta(msgspec.StructMeta):
    """Lets type checkers treat every Record as frozen."""


class Record(msgspec.Struct, metaclass=RecordMeta, frozen=True, gc=False):
    """Base of all row classes. Fields are positional and keyword arguments, in the order they are written.

    The garbage collector does not track records: a frozen object cannot become part of a cycle.
    """

    @classmethod
    def schema(cls) -> pa.Schema:
        """The Arrow schema of the annotations. Raises GraphError naming a field that has no Arrow type."""
        return _schema(cls)

    @classmethod
    def extend(cls, other: Record, **fields: Any) -> Self:
        """A record with the values of ``other`` for fields of the same name, and ``fields`` for the rest.

        Raises TypeError naming a field without a value and without a default.
        """
        taken = {name: getattr(other, name) for name in _shared_names(cls, type(other)) if name not in fields}
        return cls(**taken, **fields)


class ArrowSchema(Protocol):
    """A ``pyarrow.Schema``. Where no types of pyarrow are installed, ``pa.Schema`` is Any for type checkers, and would
    hide the class of rows that may be given instead."""

    def remove_metadata(self) -> Any: ...


class DeadLetter(Record):
    """A row on which a function failed. ``operator``: where; ``error``: what was raised; ``record``: the row as JSON
    text. ``channel``, ``sequence``, ``row``: input channel, sequence number of the frame, row in the frame. ``place``:
    the last line of the function that ran, such as ``fraud.py:31 in on_row``."""

    operator: str
    error: str
    record: str
    channel: int
    sequence: int
    row: int
    place: str


def at(offset: Duration) -> int:
    """An Instant ``offset`` after the epoch, for tests: ``at("30s")``."""
    return micros(offset)


def schema_of(rows: type[Record] | ArrowSchema) -> pa.Schema:
    """The schema of rows that are declared by a Record class or a schema. Raises GraphError for anything else."""
    if isinstance(rows, pa.Schema):
        check_names(rows.names, "the schema")
        return rows
    if isinstance(rows, type) and issubclass(rows, Record):
        return _schema(rows)  # not rows.schema(): a field may have this name
    raise GraphError(f"{rows!r} declares no rows: give a Record class or a pyarrow schema")


@functools.cache
def record_type(schema: pa.Schema) -> type[Record]:
    """A Record class generated from a schema, if the user gave none. Its fields are the schema's, in order. A column
    whose name is no identifier, or begins with two underscores, has a field of a similar name: ``Order_ID`` for
    ``Order ID``, ``_op`` for ``__op``.

    Raises GraphError for a column that no field can stand for."""
    names: dict[str, str] = {}
    for column in schema.names:
        if _UNFIT.search(column):
            raise GraphError(
                f"column {column!r} cannot be a field of a row, as its name has a quote, a backslash or a control "
                "character: give it another name by select(), or leave it out"
            )
        names[_attribute(column, names)] = column
    members: dict[str, Any] = {name: msgspec.field(name=column) for name, column in names.items() if name != column}
    members["__annotations__"] = {name: _annotation(schema.field(column)) for name, column in names.items()}
    defined = types.new_class("Row", (Record,), {}, lambda body: body.update(members))
    return typing.cast("type[Record]", defined)


@functools.cache
def attributes_of(cls: Any) -> dict[str, str]:
    """By column, the attribute of a row class that holds its values; empty for other classes."""
    if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
        return {}
    return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


def attribute_of(cls: Any, column: str) -> str | None:
    """The attribute of an object that holds the values of a column: a field, or a property of the class. None if there
    is none."""
    found = attributes_of(cls).get(column)
    if found is not None:
        return found
    return column if hasattr(cls, column) and not hasattr(Record, column) else None


def _attribute(column: str, taken: Mapping[str, Any]) -> str:
    """An identifier for a column: the name itself, or a similar one."""
    name = re.sub(r"\W", "_", column)
    if name.startswith("__"):  # Python has other rules for such names in a class
        name = name.strip("_") if name.endswith("__") else f"_{name.lstrip('_')}"
    name = name if name.isidentifier() else f"_{name}"
    name = f"{name}_" if keyword.iskeyword(name) else name
    while name in taken:
        name += "_"
    return name


def field_types(cls: type[Record]) -> dict[str, Any]:
    """The annotations of a Record's fields, resolved, in order. A field does not hide the type after which it is
    called, as in ``list: list[int]``."""
    named = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    local = {name: value for name, value in named.items() if not isinstance(value, types.MemberDescriptorType)}
    try:
        hints = typing.get_type_hints(cls, localns=local, include_extras=True)
    except NameError as error:
        raise GraphError(f"{cls.__name__}: {error}; define the types of its fields at the top of the module") from error
    return {name: hints[name] for name in cls.__struct_fields__}


@functools.cache
def _schema(cls: type[Record]) -> pa.Schema:
    found = pa.schema(_fields(cls, ()))
    check_names(found.names, cls.__name__)
    return found


def _fields(cls: type[Record], around: tuple[type[Record], ...]) -> list[pa.Field[Any]]:
    """The columns of a class. ``around``: the classes whose fields hold it."""
    if cls in around:
        raise GraphError(
            f"{cls.__name__} contains itself, which no column type can express: refer to other rows by key"
        )
    columns = cls.__struct_encode_fields__
    types_of = field_types(cls)
    return [
        _field(cls, name, column, annotation, around)
        for (name, annotation), column in zip(types_of.items(), columns, strict=True)
    ]


@functools.cache
def _shared_names(target: type[Record], other: type[Record]) -> tuple[str, ...]:
    known = frozenset(other.__struct_fields__)
    return tuple(name for name in target.__struct_fields__ if name in known)


def _field(
    cls: type[Record], name: str, column: str, annotation: Any, around: tuple[type[Record], ...]
) -> pa.Field[Any]:
    inner, nullable = split_optional(annotation)
    try:
        type_ = _arrow_type(inner, (*around, cls))
    except GraphError as error:
        raise GraphError(f"{cls.__name__}.{name}: {error}") from error
    if type_ is None:
        known = (
            "int, float, str, bool, bytes, datetime, date, timedelta, Instant, Money, list[...], a Record, or "
            "Annotated[..., pa.DataType]"
        )
        raise GraphError(f"{cls.__name__}.{name}: {_spelled(annotation)} has no column type; use {known}")
    extras = typing.get_args(inner)[1:] if typing.get_origin(inner) is Annotated else ()
    try:
        return pa.field(column, type_, nullable=nullable, metadata=written_as(type_, extras))
    except GraphError as error:
        raise GraphError(f"{cls.__name__}.{name}: {error}") from error


def split_optional(annotation: Any) -> tuple[Any, bool]:
    """``T | None`` as (T, True), anything else as (itself, False)."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(inner) == 1 and len(typing.get_args(annotation)) == 2:
            return inner[0], True
    return annotation, False


def column_type(annotation: Any) -> pa.DataType | None:
    """The type of a column with this annotation; None if there is none."""
    return _arrow_type(split_optional(annotation)[0], ())


def _arrow_type(annotation: Any, around: tuple[type[Record], ...]) -> pa.DataType | None:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        named = [extra for extra in arguments[1:] if isinstance(extra, pa.DataType)]
        return named[0] if named else _arrow_type(arguments[0], around)
    if origin is list:
        inner, nullable = split_optional(arguments[0])
        item = _arrow_type(inner, around)
        if typing.get_origin(inner) is Annotated and item is not None:
            _refuse_numbers(pa.field("item", item, metadata=written_as(item, typing.get_args(inner)[1:])))
        return None if item is None else pa.list_(pa.field("item", item, nullable=nullable))
    if isinstance(annotation, type) and issubclass(annotation, Record):
        fields = _fields(annotation, around)
        for field in fields:
            _refuse_numbers(field)
        return pa.struct(fields)
    return _SCALARS.get(annotation)


def _refuse_numbers(inner: pa.Field[Any]) -> None:
    """Raises GraphError if times inside a list or an inner record are to be written as numbers."""
    unit = epoch_unit(inner)
    if unit is not None:
        raise GraphError(
            f"Epoch({unit!r}) is for columns, not for {inner.name!r} within one: declare an int there and make a "
            "datetime of it in a function"
        )


def _annotation(field: pa.Field[Any]) -> Any:
    annotation: Any = Annotated.__class_getitem__((_python_type(field.type), field.type))  # type: ignore[attr-defined]
    return annotation | None if field.nullable else annotation


def _python_type(type_: pa.DataType) -> Any:
    if pa.types.is_integer(type_):
        return int
    if pa.types.is_floating(type_):
        return float
    if pa.types.is_decimal(type_):
        return Decimal
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return str
    if pa.types.is_boolean(type_):
        return bool
    if pa.types.is_timestamp(type_):
        return datetime
    if pa.types.is_date(type_):
        return date
    if pa.types.is_duration(type_):
        return timedelta
    return Any


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
