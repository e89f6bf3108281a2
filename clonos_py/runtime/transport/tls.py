"""TLS between nodes: the files of the settings, checked before anything uses them.

Both sides of a connection present a certificate, and accept only certificates that the authority of the settings has
signed. Names in certificates are not compared with addresses: a process with a certificate of this authority and the
job's secret belongs to the job, on any node.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from clonos_py.model.errors import SettingError


class Tls(NamedTuple):
    """The TLS contexts for accepting and for connecting sockets."""

    acceptor: ssl.SSLContext
    connector: ssl.SSLContext


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files, the same on every node: the certificate to present (with the chain up to the authority, if
    any), its key without a password, and the certificate of the authority."""

    certificate: Path
    key: Path
    ca: Path

    def load(self) -> Tls:
        """Reads the files and performs one TLS handshake in memory, so that it finds here what peers would refuse.
        Raises SettingError."""
        self._check_readable()
        tls = Tls(self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT))
        tls.acceptor.num_tickets = 0  # no connection is ever resumed
        try:
            _rehearse(tls)
        except ssl.SSLError as error:
            reason = f"peers would refuse tls_certificate {self.certificate} under tls_ca {self.ca}"
            raise SettingError(f"{reason}: {tls_reason(error)}") from error
        return tls

    def _check_readable(self) -> None:
        for name, path in (("tls_certificate", self.certificate), ("tls_key", self.key), ("tls_ca", self.ca)):
            try:
                path.read_bytes()
            except OSError as error:
                reason = f"{name}: {path} cannot be read: {error.strerror}"
                raise SettingError(f"{reason}; it must be there on every node") from error

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key, password=b"")
        except ssl.SSLError as error:
            pair = f"tls_certificate {self.certificate} and tls_key {self.key}"
            hint = "a certificate and its own key without a password, both in PEM"
            raise SettingError(f"{pair} are not {hint}: {tls_reason(error)}") from error
        try:
            context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            raise SettingError(f"tls_ca: {self.ca} holds no certificate in PEM: {tls_reason(error)}") from error
        return context


def tls_reason(error: ssl.SSLError) -> str:
    """The reason of a TLS error, without OpenSSL's codes."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).lower().replace("_", " ")


def _rehearse(tls: Tls) -> None:
    """Performs a handshake in memory. Raises SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    connector = tls.connector.wrap_bio(back, there)
    acceptor = tls.acceptor.wrap_bio(there, back, server_side=True)
    for side in (connector, acceptor, connector, acceptor):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
