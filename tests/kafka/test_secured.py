"""A cluster with passwords and access control: a refused user or a missing permission is reported in one line."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,  # pyright: ignore[reportPrivateImportUsage]
    AclBindingFilter,  # pyright: ignore[reportPrivateImportUsage]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AclPermissionType,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ResourcePatternType,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from clonos_py.bench.kafka.cluster import ADMIN, BrokerCluster, Listener
from clonos_py.connectors import KafkaSecurity, KafkaSink, KafkaSource, Secret
from clonos_py.connectors.kafka.client import Client, ClusterConnection, Message, Security
from clonos_py.model.errors import ClonosError, SinkError, SourceError
from clonos_py.model.ids import Attempt
from tests.connectors.contexts import opened
from tests.kafka.conftest import CLIENTS, USERS, above_the_client
from tests.kafka.test_causal_sink import SHAPE, Line, piece, visible
from tests.kafka.test_client import write
from tests.kafka.test_source import closing_readers, numbers, polled
from tests.kafka.test_source import opened as opened_reader
from tests.waiting import SOON_S, wait_until

__all__ = ["closing_readers"]

ANY_ACL = cast("Any", AclBindingFilter)(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
NOT_LET_IN = "the broker refuses: .*authentication"
RIGHTS: Mapping[str, tuple[str, str, str]] = {
    "read the topic": ("TOPIC", "{topic}", "READ"),
    "write the topic": ("TOPIC", "{topic}", "WRITE"),
    "make the journal": ("TOPIC", "{journal}", "CREATE"),
    "read the journal": ("TOPIC", "{journal}", "READ"),
    "write the journal": ("TOPIC", "{journal}", "WRITE"),
    "delete from the journal": ("TOPIC", "{journal}", "DELETE"),
    "use the id": ("TRANSACTIONAL_ID", "{journal}.0", "WRITE"),
}
"""What a user needs: resource, name, operation."""


@pytest.fixture
def bootstrap(broker: BrokerCluster) -> str:
    return broker.at(Listener.SASL_PLAINTEXT)


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """The settings of the administrator."""
    security = Security("SASL_PLAINTEXT", "PLAIN", ADMIN, USERS[ADMIN])
    return CLIENTS[request.param](ClusterConnection(bootstrap, security))


@pytest.fixture
def hot(at: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a user without permissions."""
    monkeypatch.setenv("PASSWORD_OF_HOT", USERS["hot"])
    return {**at, "security": KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "hot", Secret(env="PASSWORD_OF_HOT"))}


def allow(bootstrap: str, topic: str, *without: str) -> None:
    """Gives the user all permissions but some."""
    admin: Any = AdminClient({
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": USERS[ADMIN],
    })  # fmt: skip
    bindings = [
        AclBinding(
            ResourceType[kind],
            name.format(topic=topic, journal=f"{topic}.out.journal"),
            ResourcePatternType.LITERAL,
            "User:hot",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for right, (kind, name, operation) in RIGHTS.items()
        if right not in without
    ]
    for made in admin.create_acls(bindings).values():
        made.result()
    wanted = {str(binding) for binding in bindings}
    wait_until(lambda: wanted <= {str(known) for known in admin.describe_acls(ANY_ACL).result()})


def written(topic: str, at: dict[str, Any]) -> None:
    """Writes a row through a causal sink, and completes a checkpoint."""
    sink: Any = opened(KafkaSink(topic, away="3s", **at).create(Line.schema()))
    try:
        sink.acquire(Attempt(1, 1), 0, SHAPE, "line")
        sink.append(0, [], [piece(0, 7)])
        sink.append(1, [], [piece(1, 8)])
        sink.commit(b"1")
    finally:
        sink.close()


def read(topic: str, at: dict[str, Any]) -> list[int]:
    return numbers(polled(opened_reader(KafkaSource(topic, Line, stop="latest", **at)), -1))


def test_rows_are_read_and_written_with_all_permissions(
    client: Client, topic: str, bootstrap: str, hot: dict[str, Any]
) -> None:
    allow(bootstrap, topic)
    written(topic, hot)
    assert visible(client, topic, 2) == [7, 8]
    assert sorted(read(topic, hot)) == [7, 8]


@above_the_client
@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("write the topic", "the broker refuses: .*topic '{topic}'.*authorization"),
        ("make the journal", "the broker refuses: .*topic '{topic}.out.journal' cannot be created"),
        ("read the journal", "the broker refuses: .*{topic}.out.journal"),
        ("write the journal", "the broker refuses: .*'{topic}.out.journal'.*authorization"),
        ("delete from the journal", "the broker refuses: .*{topic}.out.journal"),
        ("use the id", "the broker refuses: .*transactional id '{topic}.out.journal.0'"),
    ],
)
def test_a_missing_permission_of_a_sink_is_named(
    topic: str, bootstrap: str, hot: dict[str, Any], without: str, said: str
) -> None:
    allow(bootstrap, topic, without)
    began = time.monotonic()
    with pytest.raises(SinkError) as raised:
        written(topic, hot)
    assert time.monotonic() - began < SOON_S
    said_in_one_line(raised.value, said.format(topic=topic))


def test_a_topic_without_read_permission_is_named(
    client: Client, topic: str, bootstrap: str, hot: dict[str, Any]
) -> None:
    allow(bootstrap, topic, "read the topic")
    write(client, Message(topic, b'{"number": 1}', partition=0))
    with pytest.raises(SourceError) as raised:
        read(topic, hot)
    said_in_one_line(raised.value, topic)


@pytest.mark.usefixtures("never_given_up")
def test_a_wrong_password_is_reported_at_once(topic: str, at: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "password").write_text("word-that-is-wrong\n")
    security = KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "hot", Secret(file=str(tmp_path / "password")))
    began = time.monotonic()
    with pytest.raises(SourceError) as raised:
        read(topic, {**at, "security": security})
    said_in_one_line(raised.value, NOT_LET_IN)
    with pytest.raises(SinkError) as refused:
        written(topic, {**at, "security": security})
    said_in_one_line(refused.value, NOT_LET_IN)
    assert time.monotonic() - began < SOON_S


def said_in_one_line(error: ClonosError, said: str) -> None:
    assert re.search(f"Kafka at 127.0.0.1:.*({said})", str(error), re.I), str(error)
    assert "\n" not in str(error)
    assert "word-" not in str(error), "no secret"
