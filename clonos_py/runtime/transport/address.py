"""The address of an endpoint: a Unix-domain socket for peers on its node, TCP for peers on other nodes."""

from __future__ import annotations

import socket
from typing import NamedTuple

from clonos_py.model.errors import CodecError


class Address(NamedTuple):
    """Written ``node|/path|host:port`` in one string."""

    node: str
    path: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}|{self.path}|{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parses an address. Raises CodecError."""
        try:
            node, path, tcp = text.split("|")
            host, port = tcp.rsplit(":", 1)
            return cls(node, path, host, int(port))
        except ValueError as error:
            raise CodecError(f"{text!r} is not the address of an endpoint") from error

    def target(self, from_node: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
        """Socket family and socket address for connections from ``from_node``."""
        if from_node == self.node:
            return socket.AF_UNIX, self.path
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return family, (self.host, self.port)
