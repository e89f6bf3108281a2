"""The schemas of messages in a registry, and how a message names its schema."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from clonos_py.connectors.kafka.port import Failure, KafkaFailure
from clonos_py.connectors.secrets import Secret, check_hidden, revealed
from clonos_py.model.errors import one_line

T = TypeVar("T")

_MAGIC = b"\0"
PREFIX = 5
"""Bytes before what a schema describes: a zero, and the number of the schema, most significant byte first."""
_ANSWER_S = 10
AWAY_S = 30.0
"""A registry that does not answer is asked again for so long."""
_RETRY_S = 0.5
_NOT_FOUND, _SERVER_FAILS, _MANY_REQUESTS = 404, 500, 429


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry with the REST interface of Confluent's, as Karapace and Apicurio (``/apis/ccompat/v7``) have it, too.
    ``ca_file``: certificates of authorities, PEM."""

    url: str
    username: str | Secret | None = None
    password: Secret | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        check_hidden("SchemaRegistry", password=self.password)

    @classmethod
    def of(cls, given: SchemaRegistry | str | None) -> SchemaRegistry | None:
        return cls(given) if isinstance(given, str) else given

    def settings(self) -> dict[str, Any]:
        """Of the library's client. Raises SettingError."""
        made: dict[str, Any] = {"url": self.url, "timeout": _ANSWER_S}
        if self.username is not None:
            made["basic.auth.user.info"] = f"{revealed(self.username)}:{revealed(self.password) or ''}"
        if self.ca_file is not None:
            made["ssl.ca.location"] = self.ca_file
        return made


@dataclass(frozen=True)
class RegistrySchema:
    """``kind``: AVRO or PROTOBUF. ``references``: subject, which is its name, too, and version of each."""

    text: str
    kind: str
    references: Sequence[tuple[str, int]] = ()

    def given(self) -> Any:
        """To the library."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        return Schema(self.text, self.kind, [SchemaReference(name, name, version) for name, version in self.references])


class UnknownSchema(ValueError):
    """The registry does not know the schema that a message names."""


class RegistryClient:
    """Asks a registry, once for each schema. Raises KafkaFailure where it is away or refuses."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._known: dict[int, str] = {}

    @cached_property
    def _client(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(self._registry.settings())

    def schema(self, number: int) -> str:
        """Raises UnknownSchema."""
        if number not in self._known:
            client = self._client
            self._known[number] = str(self._asked(lambda: client.get_schema(number)).schema_str)
        return self._known[number]

    def register(self, subject: str, schema: RegistrySchema) -> int:
        """The number of the schema; what is registered already keeps its own."""
        client, given = self._client, schema.given()
        return int(self._asked(lambda: client.register_schema(subject, given), subject))

    def version(self, subject: str, schema: RegistrySchema) -> int:
        """That of a schema which is registered, in its subject."""
        client, given = self._client, schema.given()
        return int(self._asked(lambda: client.lookup_schema(subject, given), subject).version)

    def _asked(self, ask: Callable[[], T], subject: str | None = None) -> T:
        until = time.monotonic() + AWAY_S
        while True:
            try:
                return self._asked_once(ask, subject)
            except KafkaFailure as failure:
                if failure.kind is not Failure.AWAY or time.monotonic() > until:
                    raise
            time.sleep(_RETRY_S)

    def _asked_once(self, ask: Callable[[], T], subject: str | None) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError

        where = f"schema registry {self._registry.url}" + (f", subject {subject!r}" if subject else "")
        try:
            return ask()
        except SchemaRegistryError as problem:
            status = problem.http_status_code
            if status == _NOT_FOUND and subject is None:
                raise UnknownSchema(f"{where} does not know the schema that it names") from None
            away = status >= _SERVER_FAILS or status == _MANY_REQUESTS
            kind = Failure.AWAY if away else Failure.REFUSED
            raise KafkaFailure(kind, f"{where}: {one_line(problem)}") from None
        except Exception as problem:  # noqa: BLE001 - of whichever HTTP client the library takes
            raise KafkaFailure(Failure.AWAY, f"{where}: {one_line(problem)}") from None


def framed(number: int, values: Sequence[bytes], more: bytes = b"") -> list[bytes]:
    """Values that name their schema. ``more`` comes between."""
    prefix = _MAGIC + number.to_bytes(PREFIX - 1, "big") + more
    return [prefix + value for value in values]


def numbers_of(values: Sequence[bytes]) -> list[int]:
    """The schema that each names. Raises ValueError."""
    prefixes = [value[:PREFIX] for value in values]
    for prefix in set(prefixes):
        if len(prefix) < PREFIX or prefix[:1] != _MAGIC:
            raise ValueError("it does not begin with a zero and the number of a schema")
    return [int.from_bytes(prefix[1:], "big") for prefix in prefixes]
