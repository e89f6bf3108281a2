"""Selects the client library, and holds the address of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec

from clonos_py.connectors.kafka.client import Client, ClusterConnection, Security
from clonos_py.connectors.secrets import Secret, refuse_plain_secrets, secret_value
from clonos_py.model.errors import GraphError, SettingError

FAST, PYTHON = "confluent-kafka", "kafka-python"
_MODULES = {FAST: "confluent_kafka", PYTHON: "kafka"}
_EXTRAS = {FAST: "clonos-py[kafka-fast]", PYTHON: "clonos-py[kafka]"}
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[\w.-]+)(?::([0-9]{1,5}))?")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class KafkaSecurity:
    """How clients and brokers authenticate. ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. ``mechanism``
    (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), ``username`` and ``password`` are for SASL. The files are for SSL: CA
    certificates, the client's own certificate and its key, all PEM."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | Secret | None = None
    password: Secret | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None

    def __post_init__(self) -> None:
        if self.protocol not in _PROTOCOLS:
            raise GraphError(
                f"KafkaSecurity: unknown protocol {self.protocol!r}: choose one of {', '.join(_PROTOCOLS)}"
            )
        refuse_plain_secrets("KafkaSecurity", password=self.password, key_password=self.key_password)

    def resolved(self) -> Security:
        """The settings with their secrets. Raises SettingError."""
        return Security(
            self.protocol,
            self.mechanism,
            secret_value(self.username),
            secret_value(self.password),
            self.ca_file,
            self.certificate_file,
            self.key_file,
            secret_value(self.key_password),
        )


def _are_servers(bootstrap: object) -> bool:
    """Whether each server is a host, an IPv4 address or an IPv6 address in brackets, with or without a port. Clients
    would look for anything else until their time is over, or take a port modulo 65,536."""
    if not isinstance(bootstrap, str):
        return False
    servers = [_SERVER.fullmatch(server.strip()) for server in bootstrap.rstrip(", ").split(",")]
    return all(server is not None and 0 < int(server[1] or 9092) < 1 << 16 for server in servers)


@dataclass(frozen=True)
class ClusterAddress:
    """The address of a cluster. ``library``: None selects confluent-kafka if it is installed, else kafka-python."""

    bootstrap: str
    security: KafkaSecurity = KafkaSecurity()
    library: str | None = None

    def __post_init__(self) -> None:
        if not _are_servers(self.bootstrap):
            raise GraphError(
                f"bootstrap={self.bootstrap!r} names no brokers: write host:port, with commas between several"
            )
        if self.library is not None and self.library not in _MODULES:
            raise GraphError(f"unknown Kafka client {self.library!r}: choose one of {', '.join(_MODULES)}")

    def connect(self) -> Client:
        """Returns a client. Raises SettingError if a secret or a library is missing."""
        connection = ClusterConnection(self.bootstrap, self.security.resolved())
        if self._chosen == FAST:
            from clonos_py.connectors.kafka.fast_client import FastClient

            return FastClient(connection)
        from clonos_py.connectors.kafka.python_client import PythonClient

        return PythonClient(connection)

    @property
    def _chosen(self) -> str:
        accepted = [self.library] if self.library is not None else [FAST, PYTHON]
        found = next((name for name in accepted if find_spec(_MODULES[name]) is not None), None)
        if found is None:
            extra = _EXTRAS[self.library or PYTHON]
            raise SettingError(f"this needs a client of Kafka: pip install '{extra}'")
        return found
