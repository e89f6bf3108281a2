"""A cluster that uses TLS, and accepts clients with a certificate of its authority."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from clonos_py import Job
from clonos_py.bench.kafka.cluster import cluster
from clonos_py.connectors import KafkaSecurity, KafkaSink, KafkaSource
from clonos_py.connectors.kafka.port import Client, ClusterConnection, Message, Security
from clonos_py.model.errors import ClonosError
from tests.kafka.conftest import CLIENTS
from tests.kafka.test_jobs import results, run
from tests.kafka.test_port import write
from tests.kafka.words import Word
from tests.waiting import SOON_S


@dataclass(frozen=True)
class Files:
    """Of a party: its certificate, its key, and the authority it trusts."""

    certificate: str
    key: str
    authorities: str

    @property
    def security(self) -> KafkaSecurity:
        return KafkaSecurity("SSL", ca_file=self.authorities, certificate_file=self.certificate, key_file=self.key)


def issued(folder: Path, own: trustme.CA, trusted: trustme.CA, name: str) -> Files:
    certificate = own.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    files = Files(*(str(folder / f"{name}-{kind}.pem") for kind in ("certificate", "key", "authorities")))
    Path(files.certificate).write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    Path(files.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    trusted.cert_pem.write_to_path(files.authorities)
    return files


@dataclass(frozen=True)
class Parties:
    """``hot`` belongs to the cluster; ``strange`` has its certificate from another authority; ``wary`` trusts another
    one."""

    hot: Files
    strange: Files
    wary: Files
    bootstrap: str


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    folder = tmp_path_factory.mktemp("tls")
    ours, theirs = trustme.CA(), trustme.CA()
    broker = issued(folder, ours, ours, "broker")
    keystore = folder / "broker.pem"
    keystore.write_text(Path(broker.key).read_text() + Path(broker.certificate).read_text())
    with cluster(
        folder / "cluster",
        with_tls=True,
        ssl_client_auth="required",
        ssl_keystore_type="PEM",
        ssl_keystore_location=keystore,
        ssl_truststore_type="PEM",
        ssl_truststore_location=broker.authorities,
    ) as made:
        yield Parties(
            issued(folder, ours, ours, "hot"),
            issued(folder, theirs, ours, "strange"),
            issued(folder, ours, theirs, "wary"),
            made.bootstrap,
        )


@pytest.fixture
def bootstrap(parties: Parties) -> str:
    return parties.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, parties: Parties) -> Client:
    hot = parties.hot
    security = Security("SSL", ca_file=hot.authorities, certificate_file=hot.certificate, key_file=hot.key)
    return CLIENTS[request.param](ClusterConnection(parties.bootstrap, security))


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


@pytest.mark.parametrize("who", ["strange", "wary"])
def test_a_missing_trust_on_either_side_is_reported_in_one_line(
    client: Client, topic: str, at: dict[str, Any], parties: Parties, who: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(ClonosError) as raised:
        run(job(topic, at, getattr(parties, who)), tmp_path, runtime="local")
    text = str(raised.value)
    assert re.search("certificate|SSL|ssl|handshake|accept this user", text), text
    assert parties.bootstrap in text
    assert "\n" not in text
    assert time.monotonic() - began < SOON_S
