"""A connection to NATS servers for code without an event loop, which runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error

from clonos_py.connectors.nats.security import NatsSecurity
from clonos_py.connectors.secrets import secret_value
from clonos_py.model.errors import one_line

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long servers may be away."""
_CONNECT_S = 5.0
_RETRY_S = 0.5


@dataclass(frozen=True)
class NatsPlace:
    """Servers, and how to log in."""

    servers: Sequence[str]
    security: NatsSecurity

    def __str__(self) -> str:
        return ", ".join(self.servers)


class NatsLink:
    """An open connection. ``call`` runs a coroutine with the client. Raises nats.errors.Error and OSError."""

    def __init__(self, place: NatsPlace) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()
        try:
            self._client = self._run(self._connect(), PATIENCE_S + _CONNECT_S)
        except BaseException:
            self.close()
            raise

    def call(self, work: Callable[[Client], Awaitable[T]], timeout_s: float = PATIENCE_S) -> T:
        return self._run(work(self._client), timeout_s)

    def start(self, work: Callable[[Client], Awaitable[None]]) -> Callable[[], bool]:
        """Runs a coroutine beside others; the result cancels it."""
        return asyncio.run_coroutine_threadsafe(_awaited(work(self._client)), self._loop).cancel

    def close(self) -> None:
        if (client := getattr(self, "_client", None)) is not None:
            self._run(client.close(), _CONNECT_S)
        asyncio.run_coroutine_threadsafe(_others_cancelled(), self._loop).result(_CONNECT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work: Awaitable[T], timeout_s: float) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop).result()

    async def _connect(self) -> Client:
        security = self._place.security
        given: dict[str, Any] = {
            "user": security.user,
            "password": secret_value(security.password),
            "token": secret_value(security.token),
            "user_credentials": security.credentials,
        }
        deadline = self._loop.time() + PATIENCE_S
        while True:
            try:
                return await nats.connect(
                    list(self._place.servers),
                    connect_timeout=int(_CONNECT_S),
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=_RETRY_S,
                    error_cb=_ignore,
                    **{name: value for name, value in given.items() if value is not None},
                )
            except (Error, OSError) as error:
                if _is_final(error) or self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(_RETRY_S)


def _is_final(error: Exception) -> bool:
    return "uthorization" in str(error) or "uthentication" in str(error)


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    return one_line(error) or type(error).__name__


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _others_cancelled() -> None:
    """Cancels what still runs in this loop, and waits until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _ignore(error: Exception) -> None:
    """What goes wrong is met by the call that it concerns."""
