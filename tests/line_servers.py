"""A TCP server that sends lines: each connection goes on where the last one was, as a device would that counts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket, int], None]
"""What is done with a connection, which is the how many-th, from 0; it is closed afterwards."""


class LineServer:
    """``port`` is kept over restarts."""

    def __init__(self, talk: Talk, port: int = 0) -> None:
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True)
                self.connections += 1
                thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            self._talk(connection, number)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()


@contextmanager
def serving(talk: Talk) -> Iterator[LineServer]:
    server = LineServer(talk)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
