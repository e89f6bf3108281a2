"""The schemas of messages in a schema registry, and the prefix by which a message names its schema."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from clonos_py.connectors.kafka.client import Failure, KafkaFailure
from clonos_py.connectors.secrets import Secret, refuse_plain_secrets, secret_value
from clonos_py.model.errors import one_line

T = TypeVar("T")

_MAGIC = b"\0"
PREFIX = 5
"""The length of the prefix: a zero, and the schema's number, most significant byte first."""
_ANSWER_S = 10
AWAY_S = 30.0
"""How long requests are retried while the registry does not answer."""
_RETRY_S = 0.5
_NOT_FOUND, _SERVER_FAILS, _MANY_REQUESTS = 404, 500, 429


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry with Confluent's REST interface, which Karapace and Apicurio (``/apis/ccompat/v7``) also have.
    ``ca_file``: CA certificates, PEM."""

    url: str
    username: str | Secret | None = None
    password: Secret | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        refuse_plain_secrets("SchemaRegistry", password=self.password)

    @classmethod
    def of(cls, given: SchemaRegistry | str | None) -> SchemaRegistry | None:
        return cls(given) if isinstance(given, str) else given

    def settings(self) -> dict[str, Any]:
        """The settings of the library's client. Raises SettingError."""
        settings: dict[str, Any] = {"url": self.url, "timeout": _ANSWER_S}
        if self.username is not None:
            settings["basic.auth.user.info"] = f"{secret_value(self.username)}:{secret_value(self.password) or ''}"
        if self.ca_file is not None:
            settings["ssl.ca.location"] = self.ca_file
        return settings


@dataclass(frozen=True)
class RegistrySchema:
    """A schema. ``kind``: AVRO or PROTOBUF. ``references``: subject (also the name) and version of each one."""

    text: str
    kind: str
    references: Sequence[tuple[str, int]] = ()

    def library_schema(self) -> Any:
        """The schema in the library's type."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        return Schema(self.text, self.kind, [SchemaReference(name, name, version) for name, version in self.references])


class UnknownSchema(ValueError):
    """The registry does not have the schema that a message names."""


class RegistryClient:
    """A client that requests each schema once. Raises KafkaFailure if the registry is unreachable or refuses."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._known: dict[int, str] = {}

    @cached_property
    def _client(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(self._registry.settings())

    def schema(self, number: int) -> str:
        """The text of a schema. Raises UnknownSchema."""
        if number not in self._known:
            client = self._client
            self._known[number] = str(self._request(lambda: client.get_schema(number)).schema_str)
        return self._known[number]

    def register(self, subject: str, schema: RegistrySchema) -> int:
        """Registers a schema and returns its number; a schema that is registered already keeps its number."""
        client, library_schema = self._client, schema.library_schema()
        return int(self._request(lambda: client.register_schema(subject, library_schema), subject))

    def version(self, subject: str, schema: RegistrySchema) -> int:
        """The version of a registered schema in its subject."""
        client, library_schema = self._client, schema.library_schema()
        return int(self._request(lambda: client.lookup_schema(subject, library_schema), subject).version)

    def _request(self, call: Callable[[], T], subject: str | None = None) -> T:
        until = time.monotonic() + AWAY_S
        while True:
            try:
                return self._request_once(call, subject)
            except KafkaFailure as failure:
                if failure.kind is not Failure.AWAY or time.monotonic() > until:
                    raise
            time.sleep(_RETRY_S)

    def _request_once(self, call: Callable[[], T], subject: str | None) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError

        where = f"schema registry {self._registry.url}" + (f", subject {subject!r}" if subject else "")
        try:
            return call()
        except SchemaRegistryError as problem:
            status = problem.http_status_code
            if status == _NOT_FOUND and subject is None:
                raise UnknownSchema(f"{where} has no schema with the id in the message") from None
            away = status >= _SERVER_FAILS or status == _MANY_REQUESTS
            kind = Failure.AWAY if away else Failure.REFUSED
            raise KafkaFailure(kind, f"{where}: {one_line(problem)}") from None
        except Exception as problem:  # noqa: BLE001 - the errors depend on the library's HTTP client
            raise KafkaFailure(Failure.AWAY, f"{where}: {one_line(problem)}") from None


def framed(number: int, values: Sequence[bytes], more: bytes = b"") -> list[bytes]:
    """Values preceded by the prefix that names their schema and by ``more``."""
    prefix = _MAGIC + number.to_bytes(PREFIX - 1, "big") + more
    return [prefix + value for value in values]


def numbers_of(values: Sequence[bytes]) -> list[int]:
    """The number of the schema that each value names. Raises ValueError."""
    prefixes = [value[:PREFIX] for value in values]
    for prefix in set(prefixes):
        if len(prefix) < PREFIX or prefix[:1] != _MAGIC:
            raise ValueError("it does not begin with a zero and the number of a schema")
    return [int.from_bytes(prefix[1:], "big") for prefix in prefixes]
