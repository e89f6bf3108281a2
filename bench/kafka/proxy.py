"""A proxy in front of a broker that cuts connections: all at once, or a single one before the answer to a commit."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.bench.ports import free_ports

_END_TRANSACTION = 26
"""The key of Kafka's EndTxn request, which commits or aborts a transaction."""
_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">h")
_PIECE_BYTES = 64 << 10


class CuttingProxy:
    """Forwards requests and answers between clients and one broker. Its methods may be called from any thread."""

    def __init__(self, port: int, broker_port: int) -> None:
        self.port, self._broker_port = port, broker_port
        self.cut_answers = 0
        """How many of the next EndTxn requests get no answer: the broker carries them out, and the connection is cut
        before the client receives the answer."""
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Closes all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    # ---- the thread

    def run(self, ready: threading.Event) -> None:
        """Runs the event loop of the proxy in the calling thread, until ``stop``."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        self._loop.run_until_complete(asyncio.sleep(0))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            client.transport.abort()
            return
        self._open |= {client, broker}
        cut_answer = asyncio.Event()
        pumps = (self._requests(client_reader, broker, cut_answer), self._answers(broker_reader, client, cut_answer))
        tasks = [asyncio.ensure_future(pump) for pump in pumps]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open -= {client, broker}
        client.transport.abort()
        broker.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, cut_answer: asyncio.Event
    ) -> None:
        """Forwards requests one by one. Each begins with its size and its API key."""
        while True:
            size = await reader.readexactly(_SIZE.size)
            body = await reader.readexactly(_SIZE.unpack(size)[0])
            if self.cut_answers and _KEY.unpack_from(body)[0] == _END_TRANSACTION:
                self.cut_answers -= 1
                cut_answer.set()
            broker.write(size + body)
            await broker.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, cut_answer: asyncio.Event
    ) -> None:
        while (piece := await reader.read(_PIECE_BYTES)) and not cut_answer.is_set():
            client.write(piece)
            await client.drain()


@contextmanager
def proxied(broker_port: int) -> Iterator[CuttingProxy]:
    """Runs a proxy on a free port within the block. The broker need not run yet."""
    proxy = CuttingProxy(free_ports(1)[0], broker_port)
    ready = threading.Event()
    thread = threading.Thread(target=proxy.run, args=(ready,), name="kafka proxy", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
