"""One broker for all tests of a process: it takes seconds to start. KAFKA_BOOTSTRAP names another cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from clonos_py.connectors.kafka.fast_client import FastClient
from clonos_py.connectors.kafka.port import Client, ClusterConnection
from clonos_py.connectors.kafka.python_client import PythonClient
from tests.kafka.cluster import cluster

CLIENTS: Mapping[str, type[FastClient] | type[PythonClient]] = {
    "confluent-kafka": FastClient,
    "kafka-python": PythonClient,
}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with cluster(tmp_path_factory.mktemp("kafka")) as found:
        yield found.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each of the libraries."""
    return CLIENTS[request.param](ClusterConnection(bootstrap))


@pytest.fixture
def at(client: Client, bootstrap: str) -> dict[str, Any]:
    """Where sources and sinks find the cluster, with the same library."""
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
