"""One broker for all tests of a process, with a listener of each kind: it takes seconds to start. KAFKA_BOOTSTRAP names
another cluster for the tests of the listener without proxy, passwords and TLS."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from clonos_py.bench.kafka.cluster import ADMIN, BrokerCluster, Listener, cluster
from clonos_py.connectors.kafka import fast_client, library, python_client
from clonos_py.connectors.kafka.client import Client, ClusterConnection
from clonos_py.connectors.kafka.fast_client import FastClient
from clonos_py.connectors.kafka.python_client import PythonClient
from tests.kafka.certificates import Parties, issued
from tests.waiting import WAIT_S_MAX, wait_until

CLIENTS: Mapping[str, type[FastClient] | type[PythonClient]] = {
    "confluent-kafka": FastClient,
    "kafka-python": PythonClient,
}
OFTEN, SELDOM = CLIENTS
ONE_CLIENT = [OFTEN, pytest.param(SELDOM, marks=pytest.mark.thorough)]
"""For tests of what is above the client. Both libraries have the tests of clients (``test_client.py``) in every run,
and those of cut connections, of passwords and of certificates."""
above_the_client = pytest.mark.parametrize("client", ONE_CLIENT, indirect=True)
THREADS = ("kafka read ahead", "kafka topics")
_numbers = itertools.count(1)


USERS = {ADMIN: "word-of-admin", "hot": "word-of-hot"}
"""Names and passwords on the listener that asks for them."""


@pytest.fixture(scope="session")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return issued(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def broker(parties: Parties, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with cluster(
        tmp_path_factory.mktemp("kafka"), listeners=list(Listener), users=USERS, **parties.settings_of_broker
    ) as made:
        yield made


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        return given
    broker: BrokerCluster = request.getfixturevalue("broker")
    return broker.bootstrap


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Processes that a job leaves would take processor time from all tests after it."""
    yield

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name in THREADS]

    wait_until(lambda: not left(), left)


def _give_up_after(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fast_client, library, python_client):
        monkeypatch.setattr(module, "ANSWER_S", seconds)


@pytest.fixture
def nothing_listens(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address without a broker. Clients wait shortly for an answer, since none comes however long they wait."""
    _give_up_after(0.5, monkeypatch)
    return "127.0.0.1:1"


@pytest.fixture
def never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """For errors that must come before any timeout."""
    _give_up_after(WAIT_S_MAX, monkeypatch)


@pytest.fixture(params=ONE_CLIENT)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    return CLIENTS[request.param](ClusterConnection(bootstrap))


@pytest.fixture
def at(client: Client, bootstrap: str) -> dict[str, Any]:
    """The settings of sources and sinks for the cluster, with the same library."""
    library = next(name for name, made in CLIENTS.items() if isinstance(client, made))
    return {"bootstrap": bootstrap, "client": library}


@pytest.fixture
def topic(client: Client) -> str:
    """A new one with two partitions."""
    name = f"topic-{os.getpid()}-{next(_numbers)}"
    admin = client.admin()
    admin.create(name, 2, {})
    admin.close()
    return name
