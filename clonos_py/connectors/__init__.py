"""Sources and sinks for jobs, and the parts from which users build their own.

Each class is imported on first use: a process of a job loads only what its own operators need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clonos_py.connectors.blackhole import BlackholeSink
    from clonos_py.connectors.console import PrintSink
    from clonos_py.connectors.database.sink import DatabaseSink
    from clonos_py.connectors.database.source import DatabaseSource
    from clonos_py.connectors.delta.sink import DeltaSink
    from clonos_py.connectors.delta.source import DeltaSource
    from clonos_py.connectors.digests import DigestSink
    from clonos_py.connectors.event_stream_source import EventStreamDeadLetter, EventStreamSource
    from clonos_py.connectors.file_results import read_results
    from clonos_py.connectors.files import FileDeadLetter, FileSink, FileSource
    from clonos_py.connectors.iceberg.sink import IcebergSink
    from clonos_py.connectors.iceberg.source import IcebergSource
    from clonos_py.connectors.kafka.avro import Avro
    from clonos_py.connectors.kafka.clients import KafkaSecurity
    from clonos_py.connectors.kafka.columns import KafkaDeadLetter
    from clonos_py.connectors.kafka.protobuf import Protobuf
    from clonos_py.connectors.kafka.registry import SchemaRegistry
    from clonos_py.connectors.kafka.sink import KafkaSink
    from clonos_py.connectors.kafka.source import KafkaSource
    from clonos_py.connectors.memory import MemorySink, MemorySource
    from clonos_py.connectors.mqtt.sink import MqttSink
    from clonos_py.connectors.mqtt.source import MqttDeadLetter, MqttSource
    from clonos_py.connectors.nats.security import NatsSecurity
    from clonos_py.connectors.nats.sink import NatsSink
    from clonos_py.connectors.nats.source import NatsSource
    from clonos_py.connectors.partitions import Partition, PartitionRead, PartitionReader
    from clonos_py.connectors.polled_source import PolledSource
    from clonos_py.connectors.postgres.sink import PostgresSink
    from clonos_py.connectors.postgres.source import PostgresSource
    from clonos_py.connectors.ray_dataset import RayDataset
    from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
    from clonos_py.connectors.row_reader import PartitionedSource, RowReader
    from clonos_py.connectors.row_writer import IdempotentSink, RowWriter
    from clonos_py.connectors.secrets import Secret
    from clonos_py.connectors.sequence import SequenceSource
    from clonos_py.connectors.socket_source import SocketDeadLetter, SocketSource
    from clonos_py.connectors.staging import StagedPiece, StagedSink
    from clonos_py.connectors.upserts import UpsertFileSink, UpsertMemorySink
    from clonos_py.connectors.webhook_sink import WebhookSink
    from clonos_py.connectors.webhook_source import WebhookDeadLetter, WebhookSource
    from clonos_py.connectors.websocket_source import WebSocketDeadLetter, WebSocketSource
    from clonos_py.model.connectors import Delivery, MultiSourceDefinition, SinkDefinition, SourceDefinition
    from clonos_py.model.errors import SinkError, SourceError
    from clonos_py.model.operators import Discovered, End, OperatorContext, Output, Read, Sink, Source, Wait
    from clonos_py.model.state import Chunk, OperatorState

__all__ = [
    "Avro",
    "BlackholeSink",
    "Chunk",
    "CommitId",
    "DatabaseSink",
    "DatabaseSource",
    "Delivery",
    "DeltaSink",
    "DeltaSource",
    "DigestSink",
    "Discovered",
    "End",
    "EventStreamDeadLetter",
    "EventStreamSource",
    "FileDeadLetter",
    "FileSink",
    "FileSource",
    "IcebergSink",
    "IcebergSource",
    "IdempotentSink",
    "KafkaDeadLetter",
    "KafkaSecurity",
    "KafkaSink",
    "KafkaSource",
    "MemorySink",
    "MemorySource",
    "MqttDeadLetter",
    "MqttSink",
    "MqttSource",
    "MultiSourceDefinition",
    "NatsSecurity",
    "NatsSink",
    "NatsSource",
    "OperatorContext",
    "OperatorState",
    "Output",
    "Partition",
    "PartitionRead",
    "PartitionReader",
    "PartitionedSource",
    "PolledSource",
    "PostgresSink",
    "PostgresSource",
    "PrintSink",
    "Protobuf",
    "RayDataset",
    "Read",
    "RowCommitter",
    "RowReader",
    "RowWriter",
    "SchemaRegistry",
    "Secret",
    "SequenceSource",
    "Sink",
    "SinkDefinition",
    "SinkError",
    "SocketDeadLetter",
    "SocketSource",
    "Source",
    "SourceDefinition",
    "SourceError",
    "StagedPiece",
    "StagedSink",
    "TransactionalSink",
    "UpsertFileSink",
    "UpsertMemorySink",
    "Wait",
    "WebSocketDeadLetter",
    "WebSocketSource",
    "WebhookDeadLetter",
    "WebhookSink",
    "WebhookSource",
    "read_results",
]

_HOMES = {
    "Avro": "kafka.avro",
    "BlackholeSink": "blackhole",
    "CommitId": "row_committer",
    "DeltaSink": "delta.sink",
    "DeltaSource": "delta.source",
    "DatabaseSink": "database.sink",
    "DatabaseSource": "database.source",
    "DigestSink": "digests",
    "EventStreamDeadLetter": "event_stream_source",
    "EventStreamSource": "event_stream_source",
    "FileDeadLetter": "files",
    "FileSink": "files",
    "FileSource": "files",
    "IcebergSink": "iceberg.sink",
    "IcebergSource": "iceberg.source",
    "IdempotentSink": "row_writer",
    "KafkaDeadLetter": "kafka.columns",
    "KafkaSecurity": "kafka.clients",
    "KafkaSink": "kafka.sink",
    "KafkaSource": "kafka.source",
    "MemorySink": "memory",
    "MemorySource": "memory",
    "MqttDeadLetter": "mqtt.source",
    "MqttSink": "mqtt.sink",
    "MqttSource": "mqtt.source",
    "NatsSecurity": "nats.security",
    "NatsSink": "nats.sink",
    "NatsSource": "nats.source",
    "Partition": "partitions",
    "PartitionRead": "partitions",
    "PartitionReader": "partitions",
    "PartitionedSource": "row_reader",
    "PolledSource": "polled_source",
    "PostgresSink": "postgres.sink",
    "PostgresSource": "postgres.source",
    "PrintSink": "console",
    "Protobuf": "kafka.protobuf",
    "RayDataset": "ray_dataset",
    "RowCommitter": "row_committer",
    "RowReader": "row_reader",
    "RowWriter": "row_writer",
    "SchemaRegistry": "kafka.registry",
    "Secret": "secrets",
    "SequenceSource": "sequence",
    "SocketDeadLetter": "socket_source",
    "SocketSource": "socket_source",
    "StagedPiece": "staging",
    "StagedSink": "staging",
    "TransactionalSink": "row_committer",
    "UpsertFileSink": "upserts",
    "UpsertMemorySink": "upserts",
    "WebSocketDeadLetter": "websocket_source",
    "WebSocketSource": "websocket_source",
    "WebhookDeadLetter": "webhook_source",
    "WebhookSink": "webhook_sink",
    "WebhookSource": "webhook_source",
    "read_results": "file_results",
}

_CONTRACTS = {
    "Chunk": "clonos_py.model.state",
    "Delivery": "clonos_py.model.connectors",
    "Discovered": "clonos_py.model.operators",
    "End": "clonos_py.model.operators",
    "MultiSourceDefinition": "clonos_py.model.connectors",
    "OperatorContext": "clonos_py.model.operators",
    "OperatorState": "clonos_py.model.state",
    "Output": "clonos_py.model.operators",
    "Read": "clonos_py.model.operators",
    "Sink": "clonos_py.model.operators",
    "SinkDefinition": "clonos_py.model.connectors",
    "SinkError": "clonos_py.model.errors",
    "Source": "clonos_py.model.operators",
    "SourceDefinition": "clonos_py.model.connectors",
    "SourceError": "clonos_py.model.errors",
    "Wait": "clonos_py.model.operators",
}
"""The types that connectors are built from."""


def __getattr__(name: str) -> Any:
    if name in _CONTRACTS:
        return getattr(import_module(_CONTRACTS[name]), name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
