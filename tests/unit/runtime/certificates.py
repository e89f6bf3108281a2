"""Certificates made on the spot, as files of the settings."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme

from clonos_py.runtime.transport.tls import TlsFiles


class Authority:
    """Signs certificates and writes the files of the settings."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(folder / "ca.pem")

    def files(self, name: str = "node", not_after: datetime.datetime | None = None) -> TlsFiles:
        certificate = self._ca.issue_cert("node.example", not_after=not_after)
        folder = self._folder
        files = TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
        certificate.cert_chain_pems[0].write_to_path(files.certificate)
        certificate.private_key_pem.write_to_path(files.key)
        return files
