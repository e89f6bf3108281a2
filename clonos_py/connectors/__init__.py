"""Sources and sinks, as users name them in a job.

Each is imported when it is named: a process of a job loads what its own operators need, and no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clonos_py.connectors.blackhole import BlackholeSink
    from clonos_py.connectors.console import PrintSink
    from clonos_py.connectors.digests import DigestSink
    from clonos_py.connectors.files import FileDeadLetter, FileSink, FileSource, read_results
    from clonos_py.connectors.kafka.avro import Avro
    from clonos_py.connectors.kafka.clients import KafkaSecurity
    from clonos_py.connectors.kafka.columns import KafkaDeadLetter
    from clonos_py.connectors.kafka.protobuf import Protobuf
    from clonos_py.connectors.kafka.registry import SchemaRegistry
    from clonos_py.connectors.kafka.sink import KafkaSink
    from clonos_py.connectors.kafka.source import KafkaSource
    from clonos_py.connectors.memory import MemorySink, MemorySource
    from clonos_py.connectors.secrets import Secret
    from clonos_py.connectors.socket_source import SocketDeadLetter, SocketSource
    from clonos_py.connectors.upserts import UpsertFileSink, UpsertMemorySink
    from clonos_py.connectors.webhook_source import WebhookDeadLetter, WebhookSource

__all__ = [
    "Avro",
    "BlackholeSink",
    "DigestSink",
    "FileDeadLetter",
    "FileSink",
    "FileSource",
    "KafkaDeadLetter",
    "KafkaSecurity",
    "KafkaSink",
    "KafkaSource",
    "MemorySink",
    "MemorySource",
    "PrintSink",
    "Protobuf",
    "SchemaRegistry",
    "Secret",
    "SocketDeadLetter",
    "SocketSource",
    "UpsertFileSink",
    "UpsertMemorySink",
    "WebhookDeadLetter",
    "WebhookSource",
    "read_results",
]

_HOMES = {
    "Avro": "kafka.avro",
    "BlackholeSink": "blackhole",
    "DigestSink": "digests",
    "FileDeadLetter": "files",
    "FileSink": "files",
    "FileSource": "files",
    "KafkaDeadLetter": "kafka.columns",
    "KafkaSecurity": "kafka.clients",
    "KafkaSink": "kafka.sink",
    "KafkaSource": "kafka.source",
    "MemorySink": "memory",
    "MemorySource": "memory",
    "PrintSink": "console",
    "Protobuf": "kafka.protobuf",
    "SchemaRegistry": "kafka.registry",
    "Secret": "secrets",
    "SocketDeadLetter": "socket_source",
    "SocketSource": "socket_source",
    "UpsertFileSink": "upserts",
    "UpsertMemorySink": "upserts",
    "WebhookDeadLetter": "webhook_source",
    "WebhookSource": "webhook_source",
    "read_results": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
