"""Avro and Protobuf with a real schema registry: other libraries read what the connectors write, and the reverse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry import avro as confluent_avro
from confluent_kafka.schema_registry import protobuf as confluent_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext

from clonos_py import Job, Record
from clonos_py.connectors import (
    Avro,
    KafkaDeadLetter,
    KafkaSink,
    KafkaSource,
    MemorySink,
    Protobuf,
    SchemaRegistry,
    Secret,
)
from clonos_py.connectors.kafka.client import Client, Failure, Fields, KafkaFailure, Message, TopicPartition
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.connectors.kafka.registry import PREFIX
from clonos_py.model.errors import GraphError, SettingError, SinkError
from clonos_py.model.record_codec import encode
from tests.kafka.apicurio import registry
from tests.kafka.protobuf_messages import Line, Order, Other, Size
from tests.kafka.test_client import reading, taken, values, write
from tests.kafka.test_jobs import run
from tests.kafka.test_protobuf import Sold, messages, rows

# Their type hints are incomplete.
AvroDeserializer: Any = confluent_avro.AvroDeserializer
AvroSerializer: Any = confluent_avro.AvroSerializer
ProtobufDeserializer: Any = confluent_protobuf.ProtobufDeserializer
ProtobufSerializer: Any = confluent_protobuf.ProtobufSerializer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def library(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


class Point(Record):
    id: int
    name: str | None


class Later(Record):
    id: int
    name: str | None
    colour: str | None


POINTS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_that_the_sink_writes_is_read_by_another_library(url: str, library: SchemaRegistryClient) -> None:
    values = format_of(Avro(url), Point.schema(), "points-out").encode(
        encode([Point(1, "a"), Point(2, None)], Point.schema())
    )
    read = AvroDeserializer(library)
    assert [read(value, context("points-out")) for value in values] == POINTS
    again = format_of(Avro(url), Point.schema(), "points-out").encode(encode([Point(1, "a")], Point.schema()))
    assert again == values[:1], "the same schema has the same number"
    assert library.get_versions("points-out-value") == [1]


def test_avro_of_several_versions_written_by_another_library_is_read(url: str, library: SchemaRegistryClient) -> None:
    def schema(*fields: Any) -> str:
        return json.dumps({"type": "record", "name": "point", "namespace": "shop", "fields": list(fields)})

    id, name = {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}
    colour = {"name": "colour", "type": ["null", "string"], "default": None}
    price = {
        "name": "price",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        "default": None,
    }
    first = AvroSerializer(library, schema(id, name))
    second = AvroSerializer(library, schema(id, colour, name))
    third = AvroSerializer(library, schema(id, colour, name, price))
    at = context("points-in")
    red = {"id": 3, "name": "c", "colour": "red"}
    written = [second(red, at), first(POINTS[0], at), third({"id": 4}, at), first(POINTS[1], at)]
    form = format_of(Avro(url), Later.schema())
    assert form.decode(written).rows.to_pylist() == [
        red,
        {"id": 1, "name": "a", "colour": None},
        {"id": 4, "name": None, "colour": None},
        {"id": 2, "name": None, "colour": None},
    ]
    for bad in (b"", b"\0\0\0", b"{}-more", written[1][:PREFIX], b"\0\0\0\xff\xff" + written[1][PREFIX:]):
        with pytest.raises(Malformed) as raised:
            form.decode([written[0], written[1], bad, written[3]])
        assert raised.value.message == 2
    assert "has no schema with the id in the message" in str(raised.value)


def test_protobuf_that_the_sink_writes_is_read_by_another_library(url: str, library: SchemaRegistryClient) -> None:
    written = format_of(Protobuf(Order, url), Sold.schema(), "orders-out").encode(rows())
    read = ProtobufDeserializer(Order, {"use.deprecated.format": False})
    assert [read(value, context("orders-out")) for value in written] == messages()
    assert set(library.get_subjects()) >= {"orders-out-value", "shop/units.proto"}
    assert format_of(Protobuf(Order, url), Sold.schema(), "orders-out").encode(rows()) == written

    class Numbered(Record):
        id: int

    class Wide(Record):
        width: int

    for message, record, made in ((Line, Numbered, Numbered(7)), (Other, Numbered, Numbered(7)), (Size, Wide, Wide(7))):
        (value,) = format_of(Protobuf(message, url), record.schema(), f"{message.__name__}-out").encode(
            encode([made], record.schema())
        )
        found = ProtobufDeserializer(message, {"use.deprecated.format": False})(value, context("x"))
        assert found == message(**{record.schema().names[0]: 7})


def test_protobuf_written_by_another_library_is_read(url: str, library: SchemaRegistryClient) -> None:
    write_order = ProtobufSerializer(Order, library, {"use.deprecated.format": False})
    written = [write_order(message, context("orders-in")) for message in messages()]
    form = format_of(Protobuf(Order, url), Sold.schema())
    assert form.decode(written).rows.equals(rows())
    other = ProtobufSerializer(Other, library, {"use.deprecated.format": False})(Other(id=1), context("others-in"))
    for bad in (b"", other, messages()[0].SerializeToString(), written[0][:PREFIX]):
        with pytest.raises(Malformed) as raised:
            form.decode([written[0], bad])
        assert raised.value.message == 1


def test_a_schema_that_the_registry_refuses_is_named(url: str, library: SchemaRegistryClient) -> None:
    """Since other consumers could no longer read their messages."""
    text = json.dumps({"type": "record", "name": "row", "fields": [{"name": "id", "type": "string"}]})
    library.register_schema("taken-value", Schema(text, "AVRO"))
    httpx.put(f"{url}/config/taken-value", json={"compatibility": "FULL"}).raise_for_status()
    with pytest.raises(KafkaFailure, match="subject 'taken-value'") as raised:
        format_of(Avro(url), Point.schema(), "taken").encode(encode([Point(1, "a")], Point.schema()))
    assert raised.value.kind is Failure.REFUSED


def test_an_unreachable_registry_is_no_malformed_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clonos_py.connectors.kafka.registry.AWAY_S", 0.5)
    away = SchemaRegistry("http://127.0.0.1:1")
    with pytest.raises(KafkaFailure, match=r"schema registry http://127\.0\.0\.1:1: .*refused") as raised:
        format_of(Avro(away), Point.schema()).decode([b"\0\0\0\0\1\2"])
    assert raised.value.kind is Failure.AWAY
    with pytest.raises(GraphError, match="password would be plain text in the plan"):
        SchemaRegistry("http://x", "me", "word")  # type: ignore[arg-type]


def test_requests_to_the_registry_carry_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "secret")
    settings = SchemaRegistry("https://x", "me", Secret(env="WORD"), ca_file="ca.pem").settings()
    assert (settings["basic.auth.user.info"], settings["ssl.ca.location"]) == ("me:secret", "ca.pem")


def test_a_missing_secret_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORD", raising=False)
    registry = SchemaRegistry("http://127.0.0.1:1", "me", Secret(env="WORD"))
    with pytest.raises(SettingError, match="the environment variable WORD is not set"):
        format_of(Avro(registry), Point.schema()).decode([b"\0\0\0\0\1\2"])


def test_a_job_reads_avro_and_writes_protobuf(
    client: Client, topic: str, at: dict[str, Any], url: str, library: SchemaRegistryClient, tmp_path: Path
) -> None:
    """Messages that cannot be read are dead letters."""
    text = json.dumps({"type": "record", "name": "sold", "fields": [{"name": "id", "type": "long"}]})
    serialize = AvroSerializer(library, text)
    good = [serialize({"id": number}, context(topic)) for number in range(1_000)]
    write(client, *(Message(topic, value, partition=n % 2) for n, value in enumerate([*good, b"bad"])))

    class Numbered(Record):
        id: int

    job = Job("registry")
    source = KafkaSource(topic, Numbered, format=Avro(url), stop="latest", **at)
    numbers, letters = job.source(source.catch())
    numbers.sink(KafkaSink(f"{topic}-out", format=Protobuf(Other, url), **at))
    bad = MemorySink()
    letters.sink(bad)
    admin = client.admin()
    admin.create(f"{topic}-out", 2, {})
    admin.close()
    run(job, tmp_path, "source-kafka[0]@100ms", runtime="local")
    with reading(client, {TopicPartition(f"{topic}-out", n): 0 for n in range(2)}, Fields()) as reader:
        found = taken(reader, 1_000)
    read = ProtobufDeserializer(Other, {"use.deprecated.format": False})
    ids = [read(value, context(topic)).id for n in range(2) for value in values(found, n)]
    assert sorted(ids) == list(range(1_000))
    assert [letter.value for letter in bad.rows(KafkaDeadLetter)] == [b"bad"]


def test_a_job_whose_schema_is_refused_ends_with_the_reason(
    client: Client, topic: str, at: dict[str, Any], url: str, library: SchemaRegistryClient, tmp_path: Path
) -> None:
    text = json.dumps({"type": "record", "name": "row", "fields": [{"name": "id", "type": "string"}]})
    library.register_schema(f"{topic}-value", Schema(text, "AVRO"))
    httpx.put(f"{url}/config/{topic}-value", json={"compatibility": "FULL"}).raise_for_status()
    write(client, Message(topic, b'{"id": 1}'))

    class Numbered(Record):
        id: int

    job = Job("refused")
    source = job.source(KafkaSource(topic, Numbered, stop="latest", **at))
    source.sink(KafkaSink(topic, format=Avro(url), **at))
    with pytest.raises(SinkError, match=f"subject '{topic}-value'"):
        run(job, tmp_path, runtime="local")
