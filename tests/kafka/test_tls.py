"""A cluster that uses TLS, and accepts clients with a certificate of its authority."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Job
from clonos_py.bench.kafka.cluster import BrokerCluster, Listener
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.client import Client, ClusterConnection, Message, Security
from clonos_py.model.errors import ClonosError
from tests.kafka.certificates import Files, Parties
from tests.kafka.conftest import CLIENTS
from tests.kafka.test_client import write
from tests.kafka.test_jobs import results, run
from tests.kafka.words import Word
from tests.waiting import SOON_S


@pytest.fixture
def bootstrap(broker: BrokerCluster) -> str:
    return broker.at(Listener.SSL)


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, parties: Parties, bootstrap: str) -> Client:
    hot = parties.hot
    security = Security("SSL", ca_file=hot.authorities, certificate_file=hot.certificate, key_file=hot.key)
    return CLIENTS[request.param](ClusterConnection(bootstrap, security))


def job(topic: str, at: dict[str, Any], files: Files) -> Job:
    made = Job("tls")
    words = made.source(KafkaSource(topic, Word, stop="latest", away="3s", security=files.security, **at))
    words.sink(KafkaSink(f"{topic}.out", away="3s", security=files.security, **at))
    return made


def test_a_client_with_a_certificate_reads_and_writes(
    client: Client, topic: str, at: dict[str, Any], parties: Parties, tmp_path: Path
) -> None:
    write(client, *(Message(topic, b'{"word": "w%d", "number": %d}' % (n, n)) for n in range(100)))
    admin = client.admin()
    admin.create(f"{topic}.out", 2, {})
    admin.close()
    run(job(topic, at, parties.hot), tmp_path, runtime="local")
    assert sorted(row["number"] for row in results(client, topic, 100)) == list(range(100))


@pytest.mark.usefixtures("never_given_up")
@pytest.mark.parametrize("who", ["strange", "wary"])
def test_a_missing_trust_on_either_side_is_reported_in_one_line(
    client: Client, topic: str, at: dict[str, Any], parties: Parties, who: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(ClonosError) as raised:
        run(job(topic, at, getattr(parties, who)), tmp_path, runtime="local")
    text = str(raised.value)
    assert re.search("certificate|SSL|ssl|handshake|accept this user", text), text
    assert at["bootstrap"] in text
    assert "\n" not in text
    assert time.monotonic() - began < SOON_S
