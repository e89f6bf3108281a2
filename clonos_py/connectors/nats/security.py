"""How to log in to NATS servers."""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.connectors.secrets import Secret, refuse_plain_secrets


@dataclass(frozen=True)
class NatsSecurity:
    """A user with its password, a token, or the path of a file with credentials (``.creds``), which every node has.
    Servers at ``tls://`` are reached with TLS."""

    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    credentials: str | None = None

    def __post_init__(self) -> None:
        refuse_plain_secrets("NatsSecurity", password=self.password, token=self.token)
