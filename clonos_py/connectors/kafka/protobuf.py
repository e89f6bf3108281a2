"""Values in Protocol Buffers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.connectors.kafka.fitting import fits, fitted
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

_OWN = "google/protobuf/"
"""Files that every library has; registries do not."""


class Protobuf:
    """The values of messages are messages of a type of Protocol Buffers. ``message`` is its class, as protoc makes it.

    With a ``registry`` each value names its schema in the way of Confluent's serializers: a zero, four bytes with the
    number of the schema, and which of its messages it is. A sink registers the file of ``message``, and those that it
    imports under their names, under ``subject``, by default ``TOPIC-value``; a source does not ask the registry.

    Fields are found by their names; those that the rows do not have are left out, or keep their defaults. A field that
    can be absent (``optional``, and messages) needs a column of ``T | None``. Enums are their names, a Timestamp is
    microseconds.
    """

    def __init__(
        self, message: type[Any], registry: SchemaRegistry | str | None = None, subject: str | None = None
    ) -> None:
        needed("ptars", "google.protobuf", "confluent_kafka", extra="protobuf", format="protobuf")
        if not hasattr(message, "DESCRIPTOR"):
            raise GraphError(f"Protobuf: {message!r} is no class that protoc has made")
        descriptor = message.DESCRIPTOR
        self._name, self._registry, self._subject = str(descriptor.full_name), registry, subject
        self._files = _files(descriptor.file)
        """Of the message's file and what it imports, each after those that it needs: the class itself may not be found
        where the job runs."""

    def __str__(self) -> str:
        return "protobuf"

    def create(self, rows: pa.Schema, topic: str | None) -> Format:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        files = [FileDescriptorProto.FromString(file) for file in self._files]
        for file in files:
            pool.Add(file)
        registry = SchemaRegistry.of(self._registry)
        subject = self._subject or f"{topic}-value"
        schemas = None if registry is None else _RegisteredFiles(RegistryClient(registry), files, subject)
        made = _ProtobufFormat(pool.FindMessageTypeByName(self._name), rows, schemas)
        made.check(writing=topic is not None)
        return made


class _RegisteredFiles:
    def __init__(self, registry: RegistryClient, files: Sequence[Any], subject: str) -> None:
        self._registry, self._files, self._subject = registry, files, subject
        self._number: int | None = None

    @property
    def number(self) -> int:
        """That of the schema of the last file. Raises KafkaFailure."""
        if self._number is None:
            versions: dict[str, int] = {}
            *imported, file = self._files
            for one in imported:
                if not one.name.startswith(_OWN):
                    schema = _schema_of(one, versions)
                    self._registry.register(one.name, schema)
                    versions[one.name] = self._registry.version(one.name, schema)
            self._number = self._registry.register(self._subject, _schema_of(file, versions))
        return self._number


def _schema_of(file: Any, versions: Mapping[str, int]) -> RegistrySchema:
    """``versions``: of the files that it imports."""
    references = [(name, versions[name]) for name in file.dependency if name in versions]
    return RegistrySchema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF", references)


class _ProtobufFormat(ByRow):
    def __init__(self, descriptor: Any, rows: pa.Schema, registered: _RegisteredFiles | None) -> None:
        import ptars

        config = ptars.PtarsConfig(timestamp_unit="us", enum_repr="string")
        self._handler = ptars.HandlerPool([descriptor.file], config).get_for_message(descriptor)
        self._columns: pa.Schema = self._handler.schema()
        self._name, self._rows, self._registered = descriptor.full_name, rows, registered
        self._indexes = _indexes(descriptor)

    def check(self, writing: bool) -> None:
        """Raises GraphError naming a column that does not go with the message."""
        for field in self._rows:
            if field.name not in self._columns.names:
                known = ", ".join(self._columns.names)
                raise GraphError(f"the message {self._name} has no field {field.name!r}: it has {known}")
            other = self._columns.field(field.name)
            first, second = (field, other) if writing else (other, field)
            if not fits(first.type, second):
                raise GraphError(f"field {field.name!r} of the message {self._name} is {other.type}, not {field.type}")
            if first.nullable and not second.nullable:
                remedy = "make it optional in the message" if writing else "declare it '| None'"
                raise GraphError(f"field {field.name!r} of the message {self._name} may be absent: {remedy}")

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        bodies = values if self._registered is None else self._unframed(values)
        found = self._handler.list_to_record_batch(list(bodies))
        return fitted(found.select(self._rows.names), self._rows)

    def _unframed(self, values: Sequence[bytes]) -> list[bytes]:
        """Raises ValueError."""
        numbers_of(values)
        bodies = []
        for value in values:
            for indexes in self._indexes:
                if value.startswith(indexes, PREFIX):
                    bodies.append(value[PREFIX + len(indexes) :])
                    break
            else:
                raise ValueError(f"it is not the message {self._name} of its schema")
        return bodies

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        wanted = pa.schema([self._columns.field(name) for name in rows.schema.names])
        try:
            values: list[bytes] = self._handler.record_batch_to_array(fitted(rows, wanted)).to_pylist()
        except pa.ArrowException as problem:
            raise ValueError(one_line(problem)) from None
        if self._registered is None:
            return values
        return framed(self._registered.number, values, self._indexes[0])


def _files(file: Any) -> list[bytes]:
    found: dict[str, bytes] = {}

    def visit(one: Any) -> None:
        if one.name not in found:
            for needed_file in one.dependencies:
                visit(needed_file)
            found[one.name] = one.serialized_pb

    visit(file)
    return list(found.values())


def _indexes(descriptor: Any) -> list[bytes]:
    """Where in its file a message stands, as it is written, and as it may be read: the first of a file in short."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        beside = descriptor.file.message_types_by_name.values() if outer is None else outer.nested_types
        path.insert(0, [one.full_name for one in beside].index(descriptor.full_name))
        descriptor = outer
    whole = b"".join(map(_varint, [len(path), *path]))
    return [b"\0", whole] if path == [0] else [whole]


def _varint(number: int) -> bytes:
    """In zigzag code, of no negative number."""
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])
