"""Threads that make the service calls of asynchronous functions, one for each call in progress.

Each thread opens and closes its own clients of the user's services, because some clients must stay in one thread. All
threads share the HTTP client and its connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.errors import type_and_text
from clonos_py.services.asking import answered
from clonos_py.services.http import HttpClient, Request
from clonos_py.services.registry import ServiceRegistry

Deliver = Callable[[Answered], None]


def http_client() -> HttpClient:
    """An HTTP client. It is imported here, since most processes need none, and loading takes a tenth of a second."""
    from clonos_py.connectors.http import HttpxClient

    return HttpxClient()


class Callers:
    """``start`` and ``close`` are called by one thread; answers are delivered by others."""

    def __init__(self, http_client_factory: Callable[[], HttpClient]) -> None:
        self._http = _SharedHttpClient(http_client_factory)
        self._calls: SimpleQueue[tuple[ServiceCall, Deliver] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def start(self, call: ServiceCall, deliver: Deliver) -> None:
        """Makes the call; its answer will be delivered."""
        self._calls.put((call, deliver))
        if not self._idle.acquire(blocking=False):
            self._threads += 1
            threading.Thread(target=self._run, name=f"call {self._threads}", daemon=True).start()

    def close(self) -> None:
        """Ends the threads, each after the call that it is making."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        services = ServiceRegistry({}, lambda: self._http)
        while (job := self._calls.get()) is not None:
            call, deliver = job
            deliver(_answered(services, call))
            self._idle.release()
        services.close()


def _answered(services: ServiceRegistry, call: ServiceCall) -> Answered:
    try:
        return answered(services.client, call)
    except BaseException as problem:  # noqa: BLE001 - the caller waits for an answer
        error = f"service {call.service} cannot be called: {type_and_text(problem)}"
        return Answered(call.operator, call.number, None, error)


class _SharedHttpClient:
    """An HTTP client, opened with the first request. It is never closed, because a call may be in progress."""

    def __init__(self, factory: Callable[[], HttpClient]) -> None:
        self._factory, self._lock = factory, threading.Lock()
        self._client: HttpClient | None = None

    def send(self, request: Request) -> dict[str, object]:
        with self._lock:
            self._client = self._client or self._factory()
        return self._client.send(request)

    def close(self) -> None:
        """Does nothing: other threads may still use the client."""
