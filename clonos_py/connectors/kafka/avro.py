"""Avro as a format of message values."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from clonos_py.connectors.kafka.avro_schemas import (
    converts_by_column,
    needs_value,
    schema_of,
    times,
    without_logical_types,
)
from clonos_py.connectors.kafka.fitting import fitted
from clonos_py.connectors.kafka.formats import ByRow, Format, needed
from clonos_py.connectors.kafka.registry import (
    PREFIX,
    RegistryClient,
    RegistrySchema,
    SchemaRegistry,
    framed,
    numbers_of,
)
from clonos_py.model.errors import GraphError, one_line


@dataclass(frozen=True)
class Avro:
    """The values of messages are Avro records without a file header.

    With a ``registry`` each value names its schema as Confluent's serializers do: a zero and four bytes with the
    schema's number precede the record. A sink registers its schema under ``subject``, by default ``TOPIC-value``.
    Without a registry all values have the schema ``schema``.

    ``schema``, as JSON, is the schema that a sink writes; by default it is derived from the rows: ``int`` is long,
    ``float`` double, ``Decimal`` a decimal, ``T | None`` a union with null. Fields are matched by name; a source
    ignores fields that the rows do not have. Timestamps of any unit are microseconds in the rows.

    Numbers, text, timestamps, dates, enums, and arrays and records of these are converted by column. If a schema has
    other types, such as bytes and decimals, values are converted one by one, which takes about fifty times as long.
    """

    registry: SchemaRegistry | str | None = None
    schema: str | None = None
    subject: str | None = None

    def __str__(self) -> str:
        return "avro"

    def create(self, rows: pa.Schema, topic: str | None) -> Format:
        needed("fastavro", "pyruhvro", "confluent_kafka", extra="avro", format="avro")
        return _AvroFormat(self, rows, topic)


class _AvroFormat(ByRow):
    def __init__(self, settings: Avro, rows: pa.Schema, topic: str | None) -> None:
        self._rows, self._subject = rows, settings.subject or f"{topic}-value"
        registry = SchemaRegistry.of(settings.registry)
        self._registry = None if registry is None else RegistryClient(registry)
        self._text = settings.schema or schema_of(rows)
        self._own = _codec(self._text)
        self._number: int | None = None
        self._codecs: dict[int, _Codec] = {}
        if topic is not None:
            self._check_writing()

    def _check_writing(self) -> None:
        """Raises GraphError for rows that do not fit a given schema."""
        try:
            self._own.encode(pa.RecordBatch.from_pylist([], schema=self._rows))
        except ValueError as problem:
            raise GraphError(f"the Avro schema does not fit the rows: {problem}") from None

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        if self._registry is None:
            return fitted(self._own.decode(values, self._rows.names), self._rows)
        numbers = numbers_of(values)
        bodies = [value[PREFIX:] for value in values]
        different = list(dict.fromkeys(numbers))
        if len(different) == 1:
            return self._of_schema(different[0], bodies)
        pieces, places = [], []
        for number in different:
            chosen = [place for place, other in enumerate(numbers) if other == number]
            places += chosen
            pieces.append(self._of_schema(number, [bodies[place] for place in chosen]))
        together = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
        order = sorted(range(len(places)), key=places.__getitem__)
        return together.take(pa.array(order, pa.int64()))

    def _of_schema(self, number: int, bodies: Sequence[bytes]) -> pa.RecordBatch:
        assert self._registry is not None
        if number not in self._codecs:
            try:
                self._codecs[number] = _codec(self._registry.schema(number))
            except GraphError as problem:
                raise ValueError(str(problem)) from None
        return fitted(self._codecs[number].decode(bodies, self._rows.names), self._rows)

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        values = self._own.encode(rows)
        if self._registry is None:
            return values
        if self._number is None:
            self._number = self._registry.register(self._subject, RegistrySchema(self._text, "AVRO"))
        return framed(self._number, values)


class _Codec(Protocol):
    """Encodes and decodes values of one schema."""

    def decode(self, values: Sequence[bytes], names: Sequence[str]) -> pa.RecordBatch:
        """Decodes those of the named columns that the schema has. Raises ValueError."""
        ...

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """Raises ValueError."""
        ...


def _codec(text: str) -> _Codec:
    """The codec of a schema. Raises GraphError for an invalid one."""
    import fastavro
    from fastavro.schema import SchemaParseException

    try:
        schema = json.loads(text)
        fastavro.parse_schema(schema)
    except (ValueError, SchemaParseException) as problem:
        raise GraphError(f"this is not an Avro schema: {one_line(problem)}: {text[:200]}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise GraphError(f"the format avro needs a schema of a record: {text[:200]}")
    return _ByColumns(text) if converts_by_column(schema) else _OneByOne(schema)


class _ByColumns:
    def __init__(self, text: str) -> None:
        import pyruhvro

        self._text, self._library = text, cast("Any", pyruhvro)
        self._columns: pa.Schema = self._library.avro_to_arrow_schema(text)

    def decode(self, values: Sequence[bytes], names: Sequence[str]) -> pa.RecordBatch:
        found = pa.record_batch(self._library.deserialize_array(list(values), self._text))
        chosen = found.select([name for name in names if name in found.schema.names])
        try:
            chosen.validate(full=True)
        except pa.ArrowException as problem:
            raise ValueError(one_line(problem)) from None
        return chosen

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        encoded = self._library.serialize_record_batch(fitted(rows, self._columns), self._text, 1)
        return [value for array in encoded for value in array.to_pylist()]


class _OneByOne:
    def __init__(self, schema: Any) -> None:
        import fastavro

        self._library = fastavro
        self._times = times(schema)
        self._schema = fastavro.parse_schema(without_logical_types(schema))
        self._needed = {field["name"]: needs_value(field) for field in schema["fields"]}

    def decode(self, values: Sequence[bytes], names: Sequence[str]) -> pa.RecordBatch:
        read, schema = self._library.schemaless_reader, self._schema
        chosen = [name for name in names if name in self._needed]
        try:
            rows: list[Any] = [read(io.BytesIO(value), schema, None) for value in values]
            columns = [pa.array([row[name] for row in rows], self._times.get(name)) for name in chosen]
        except Exception as problem:  # noqa: BLE001 - malformed Avro raises many kinds of errors
            raise ValueError(f"{type(problem).__name__}: {one_line(problem)}") from None
        return pa.RecordBatch.from_arrays(columns, names=chosen)

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        for name, needed_here in self._needed.items():
            if needed_here and name not in rows.schema.names:
                raise ValueError(f"there is no field {name!r}")
        typed = [(field, self._times.get(field.name) or field.type) for field in rows.schema]
        shown = fitted(rows, pa.schema([pa.field(field.name, time, field.nullable) for field, time in typed]))
        for number, name in enumerate(shown.schema.names):
            if name in self._times:
                shown = shown.set_column(number, name, shown.column(number).cast(pa.int64()))
        try:
            return list(map(self._written, shown.to_pylist()))
        except (ValueError, TypeError, ArithmeticError) as problem:
            raise ValueError(f"{type(problem).__name__}: {one_line(problem)}") from None

    def _written(self, row: Any) -> bytes:
        out = io.BytesIO()
        self._library.schemaless_writer(out, self._schema, row)
        return out.getvalue()
