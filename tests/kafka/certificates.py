"""Certificates of a broker and of clients, by two authorities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from clonos_py.connectors import KafkaSecurity


@dataclass(frozen=True)
class Files:
    """Of a party: its certificate, its key, and the authority it trusts."""

    certificate: str
    key: str
    authorities: str

    @property
    def security(self) -> KafkaSecurity:
        return KafkaSecurity("SSL", ca_file=self.authorities, certificate_file=self.certificate, key_file=self.key)


@dataclass(frozen=True)
class Parties:
    """``hot`` belongs to the cluster; ``strange`` has its certificate from another authority; ``wary`` trusts another
    one."""

    broker: Files
    hot: Files
    strange: Files
    wary: Files

    @property
    def settings_of_broker(self) -> dict[str, Any]:
        keystore = Path(self.broker.key).with_name("broker.pem")
        keystore.write_text(Path(self.broker.key).read_text() + Path(self.broker.certificate).read_text())
        return {
            "ssl_client_auth": "required",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": keystore,
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": self.broker.authorities,
        }


def issued(folder: Path) -> Parties:
    ours, theirs = trustme.CA(), trustme.CA()
    return Parties(
        _files(folder, ours, ours, "broker"),
        _files(folder, ours, ours, "hot"),
        _files(folder, theirs, ours, "strange"),
        _files(folder, ours, theirs, "wary"),
    )


def _files(folder: Path, own: trustme.CA, trusted: trustme.CA, name: str) -> Files:
    certificate = own.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    files = Files(*(str(folder / f"{name}-{kind}.pem") for kind in ("certificate", "key", "authorities")))
    Path(files.certificate).write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    Path(files.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    trusted.cert_pem.write_to_path(files.authorities)
    return files
