"""Connections that are cut while a commit is answered: committed rows are not written again, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py.bench.kafka.cluster import BrokerCluster, Listener
from clonos_py.bench.kafka.proxy import CuttingProxy
from clonos_py.connectors.kafka.client import Client, ClusterConnection
from tests.kafka.conftest import CLIENTS, above_the_client
from tests.kafka.test_causal_sink import acquired, log, piece, visible
from tests.kafka.test_transactional_sink import prepared
from tests.kafka.test_transactional_sink import sink as transactional


@pytest.fixture
def bootstrap(broker: BrokerCluster) -> str:
    return broker.at(Listener.PROXIED)


@pytest.fixture
def proxy(broker: BrokerCluster) -> CuttingProxy:
    (node,) = broker.nodes
    assert node.proxy is not None
    return node.proxy


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    return CLIENTS[request.param](ClusterConnection(bootstrap))


def test_causal_rows_whose_commit_is_not_answered_are_written_once(
    client: Client, topic: str, at: dict[str, Any], proxy: CuttingProxy
) -> None:
    writer, _ = acquired(topic, at, 1)
    for seq in range(4):
        proxy.cut_answers = seq % 3
        writer.append(0, log(seq), [piece(seq, seq)])
        assert proxy.cut_answers == 0, "the answer was cut off"
    writer.close()
    assert visible(client, topic, 4) == [0, 1, 2, 3]
    second, shown = acquired(topic, at, 2)
    assert shown.checksums == {n: 1_000 + n for n in range(4)}
    second.close()


def test_transactional_rows_whose_commit_is_not_answered_are_written_once(
    client: Client, topic: str, at: dict[str, Any], proxy: CuttingProxy
) -> None:
    writer = transactional(topic, at)
    for checkpoint in range(1, 4):
        proxy.cut_answers = checkpoint % 3
        writer.commit(prepared(writer, checkpoint, checkpoint))
        assert proxy.cut_answers == 0, "the answer was cut off"
    writer.close()
    assert visible(client, topic, 3) == [1, 2, 3]


@above_the_client
def test_connections_that_are_cut_again_and_again_lose_and_double_no_row(
    client: Client, topic: str, at: dict[str, Any], proxy: CuttingProxy
) -> None:
    writer, _ = acquired(topic, at, 1)
    for seq in range(3):
        proxy.cut()
        writer.append(0, log(seq), [piece(seq, seq)])
    writer.close()
    assert visible(client, topic, 3) == list(range(3))
