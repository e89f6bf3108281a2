"""A server whose rates never repeat, so that a price in dollars identifies the request that it was made with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from examples.rates_server import BASE_RATES, Rates


class CountingServer(ThreadingHTTPServer):
    """``served``: the currency of each rate; the rates are 1, 2, 3..."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CountingRates)
        self.served: dict[int, str] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def next_rate(self, currency: str) -> int:
        with self._lock:
            rate = len(self.served) + 1
            self.served[rate] = currency
            return rate


class CountingRates(Rates):
    """Answers after a few milliseconds, as servers do."""

    server: CountingServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        time.sleep(0.008)
        currency = self.path.strip("/")
        if currency in BASE_RATES:
            self._answer(200, {"currency": currency, "rate": self.server.next_rate(currency)})
        else:
            self._answer(404, {"error": f"no rate for {currency}"})


@contextmanager
def counting_rates() -> Iterator[CountingServer]:
    """Serves in a thread until the end of the block."""
    server = CountingServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
