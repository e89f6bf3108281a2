"""Converts messages to rows: their values, and attributes of the messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash

from clonos_py.columns.times import MOMENT
from clonos_py.connectors.kafka.client import Fields, Messages
from clonos_py.connectors.kafka.formats import Decoded, FormatDefinition, Malformed, by_row, format_of
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.record import Record

_HEADERS = pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))
ATTRIBUTES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "timestamp": pa.int64(),
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "headers": _HEADERS,
    "tombstone": pa.bool_(),
}
"""The message attributes that a column can hold instead of a part of the value. A key may also be text, and a timestamp
a datetime."""
_MS_US = 1_000
_TIME_MAX = 2**63 - 1
_LONG_BYTES = 4_096
"""Values of at least this length on average are added to a checksum one by one, as joining them would copy them."""


@dataclass(frozen=True)
class RowLayout:
    """How messages become rows of ``schema``. ``attributes``: attributes of messages, by the column that has them.
    ``tombstones``: messages without a value are rows, although no column of ``schema`` shows which they are."""

    schema: pa.Schema
    format: str | FormatDefinition
    attributes: Mapping[str, str]
    tombstones: bool = False

    def __post_init__(self) -> None:
        """Raises GraphError for an invalid layout."""
        for column, attribute in self.attributes.items():
            if attribute not in ATTRIBUTES:
                known = ", ".join(ATTRIBUTES)
                raise GraphError(f"KafkaSource: messages have no {attribute!r}: choose one of {known}")
            if column not in self.schema.names:
                raise GraphError(f"KafkaSource: there is no column {column!r} for the {attribute} of messages")
            found, expected = self.schema.field(column).type, ATTRIBUTES[attribute]
            other = {"key": pa.string(), "timestamp": MOMENT}.get(attribute)
            if found not in (expected, other):
                raise GraphError(
                    f"KafkaSource: column {column!r} is {found}, but the {attribute} of messages {expected}"
                )
        format_of(self.format, self.values)
        if self.has_tombstones and not all(field.nullable for field in self.values):
            raise GraphError("KafkaSource: a tombstone has no value: declare the columns of values '| None'")

    @property
    def values(self) -> pa.Schema:
        """The columns that are parts of the value."""
        return pa.schema([field for field in self.schema if field.name not in self.attributes])

    @property
    def has_tombstones(self) -> bool:
        """Whether messages without a value are rows. Otherwise they are skipped."""
        return self.tombstones or "tombstone" in self.attributes.values()

    def only(self, names: Sequence[str]) -> RowLayout:
        """The same layout with these columns only."""
        schema = pa.schema([self.schema.field(name) for name in names])
        attributes = {column: attribute for column, attribute in self.attributes.items() if column in names}
        return RowLayout(schema, self.format, attributes, self.has_tombstones)

    @property
    def fields(self) -> Fields:
        """The message fields that a reader must provide."""
        mapped = set(self.attributes.values())
        return Fields("key" in mapped, "timestamp" in mapped, "headers" in mapped)


class KafkaDeadLetter(Record):
    """A message that does not fit the source's format and schema: its place, and the reason. ``value`` is empty if the
    message has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    reason: str


class RowMaker:
    """Converts messages to rows. ``letters``: columns of dead letters to make; without it malformed messages raise."""

    def __init__(self, layout: RowLayout, letters: Sequence[str] | None = None) -> None:
        self._layout = layout
        self._values = layout.values
        self._format = format_of(layout.format, self._values) if len(self._values) else None
        self._letters = None if letters is None else pa.schema([KafkaDeadLetter.schema().field(n) for n in letters])

    def skipped(self, messages: Messages) -> int:
        """The number of tombstones that are no rows."""
        return 0 if self._layout.has_tombstones else messages.values.count(None)

    @property
    def port_count(self) -> int:
        return 1 if self._letters is None else 2

    @property
    def fields(self) -> Fields:
        """The message fields that a reader must provide."""
        fields = self._layout.fields
        return fields if self._letters is None else fields._replace(keys=True)

    def ports(self, messages: Messages) -> tuple[pa.RecordBatch | None, ...]:
        """Rows and, if requested, dead letters. Raises SourceError naming the message."""
        if self._letters is None:
            return (self.rows(messages),)
        try:
            return self._rows(messages), None
        except Malformed:
            refused = dict(self._refused(messages, 0))
        good = [number not in refused for number in range(len(messages.offsets))]
        rows = self.rows(messages.each(lambda column: list(itertools.compress(column, good))))
        return rows, self._made_letters(messages, refused)

    def row_for_each(self, messages: Messages) -> pa.RecordBatch | None:
        """Rows, one for each message; None if some message has no row or several."""
        if None in messages.values:
            return None
        try:
            decoded = self._decoded(messages)
            return self._batch(messages, decoded) if decoded.counts is None else None
        except Malformed:
            return None

    def _refused(self, messages: Messages, first: int) -> Iterator[tuple[int, str]]:
        """The malformed messages by number, with the reason. ``first``: the number of the first message."""
        try:
            self._rows(messages)
        except Malformed as problem:
            middle = len(messages.offsets) // 2
            if middle:
                yield from self._refused(messages.each(lambda column: column[:middle]), first)
                yield from self._refused(messages.each(lambda column: column[middle:]), first + middle)
            else:
                yield first, str(problem)

    def _made_letters(self, messages: Messages, refused: Mapping[int, str]) -> pa.RecordBatch:
        assert self._letters is not None
        topic, partition = messages.partition
        made = [
            {
                "topic": topic,
                "partition": partition,
                "offset": messages.offsets[number],
                "key": messages.keys[number],
                "value": messages.values[number] or b"",
                "reason": reason,
            }
            for number, reason in refused.items()
        ]
        return pa.RecordBatch.from_pylist(made, schema=self._letters)

    def rows(self, messages: Messages) -> pa.RecordBatch:
        """The rows of messages; tombstones only if a column shows them. Raises SourceError naming the message."""
        try:
            return self._rows(messages)
        except Malformed as problem:
            offset = messages.offsets[problem.message]
            raise SourceError(
                f"Kafka message {messages.partition} offset {offset} is not {self._layout.format} of this schema: "
                f"{problem}; correct the schema or the program that writes such messages, or leave them out with "
                "on_error='skip', or get them as a stream with .catch()"
            ) from problem

    def _rows(self, messages: Messages) -> pa.RecordBatch:
        """Raises Malformed for one of the messages."""
        present = _present(messages)
        shown = present is messages or self._layout.has_tombstones
        try:
            decoded = self._decoded(present)
            if not shown:
                return self._batch(present, decoded)
        except Malformed as problem:
            kept = [number for number, value in enumerate(messages.values) if value is not None]
            raise Malformed(kept[problem.message], str(problem)) from None
        if present is not messages and self._format is not None:
            decoded = _with_nulls(decoded, [value is not None for value in messages.values])
        return self._batch(messages, decoded)

    def _batch(self, messages: Messages, decoded: Decoded) -> pa.RecordBatch:
        """``decoded``: the values of exactly these messages. Raises Malformed."""
        columns = [
            _attribute(self._layout.attributes[field.name], messages, decoded.counts, field)
            if field.name in self._layout.attributes
            else decoded.rows.column(field.name)
            for field in self._layout.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._layout.schema)

    def _decoded(self, messages: Messages) -> Decoded:
        """Raises Malformed."""
        values: Sequence[Any] = messages.values
        if self._format is None or not values:
            return Decoded(pa.RecordBatch.from_pylist([], schema=self._values))
        return self._format.decode(values)


def _present(messages: Messages) -> Messages:
    """The messages without tombstones."""
    if None not in messages.values:
        return messages
    kept = [value is not None for value in messages.values]
    return messages.each(lambda column: list(itertools.compress(column, kept)))


def checksum(pieces: Sequence[Messages]) -> int:
    """The checksum of the values, in order."""
    digest = xxhash.xxh3_64()
    for messages in pieces:
        some = [value for value in messages.values if value is not None]
        for value in some if sum(map(len, some)) > len(some) * _LONG_BYTES else [b"".join(some)]:
            digest.update(value)
    return digest.intdigest() >> 1


def _with_nulls(decoded: Decoded, kept: Sequence[bool]) -> Decoded:
    """Inserts a row of nulls for each message that was not kept."""
    counts = iter(decoded.counts or [1] * decoded.rows.num_rows)
    taken = 0
    rows: list[int | None] = []
    every: list[int] = []
    for whole in kept:
        count = next(counts) if whole else 1
        every.append(count)
        rows += range(taken, taken + count) if whole else [None]
        taken += count if whole else 0
    picked = [column.take(pa.array(rows, pa.int64())) for column in decoded.rows.columns]
    return Decoded(pa.RecordBatch.from_arrays(picked, schema=decoded.rows.schema), every)


def _attribute(name: str, messages: Messages, counts: Sequence[int] | None, field: pa.Field[Any]) -> pa.Array[Any]:
    column: Sequence[Any]
    match name:
        case "key":
            column = messages.keys
        case "timestamp":
            column = [at * _MS_US if at >= 0 else None for at in messages.timestamps_ms]  # -1: it has none
        case "topic":
            column = [messages.partition.topic] * len(messages.offsets)
        case "partition":
            column = [messages.partition.partition] * len(messages.offsets)
        case "offset":
            column = messages.offsets
        case "headers":
            column = [[{"name": n, "value": v} for n, v in headers] for headers in messages.headers]
        case _:
            column = [value is None for value in messages.values]
    try:
        made = pa.array(by_row(counts, column), ATTRIBUTES[name]).cast(field.type)
        if not made.null_count or field.nullable:
            return made
    except (pa.ArrowException, OverflowError):
        pass
    reasons = ((number, _misfit(name, value, field)) for number, value in enumerate(column))
    number, reason = next(found for found in reasons if found[1] is not None)
    raise Malformed(number, str(reason))


def _misfit(name: str, value: Any, field: pa.Field[Any]) -> str | None:
    """Why the column of an attribute cannot have a value; None if it can."""
    if value is None:
        return None if field.nullable else f"it has no {name}, but column {field.name!r} is not declared '| None'"
    if name == "key" and pa.types.is_string(field.type):
        try:
            value.decode()
        except UnicodeDecodeError:
            return "its key is not UTF-8 text"
    if name == "timestamp" and value > _TIME_MAX:
        return f"its timestamp of {value // _MS_US} ms is too far in the future"
    return None
