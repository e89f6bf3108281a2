"""TCP servers that send lines."""

from __future__ import annotations

import socket
import threading
import time
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


def line(number: int) -> bytes:
    return b'{"id": %d}\n' % number


class Counting:
    """Sends the next numbers below ``total``, which may grow, over the latest connection, and none twice."""

    def __init__(self, total: int, begin: int = 0, pause_s: float = 0.0005) -> None:
        self.total, self.next, self._pause_s = total, begin, pause_s
        self._turn = threading.Lock()
        self._latest = -1

    def __call__(self, connection: socket.socket, number: int) -> None:
        self._latest = number
        with self._turn:
            while self._latest == number:
                if self.next < self.total:
                    self.next += 1
                    connection.sendall(line(self.next - 1))
                time.sleep(self._pause_s)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
