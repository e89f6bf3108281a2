"""Clients of a webhook that count: each sends one number after the other, again and again until it is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx


class Clients:
    """``taken`` are the numbers that were answered 200, in the order of their answers."""

    def __init__(self, url: str, count: int, each: int, keys: bool = True) -> None:
        """``keys``: whether requests carry an idempotency key."""
        self._url, self._each, self._keys = url, each, keys
        self.taken: list[int] = []
        self.again = 0
        """How many requests had to be sent again."""
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(count)]

    def _send(self, client: int) -> None:
        with httpx.Client(timeout=20) as connection:
            for number in range(client * self._each, (client + 1) * self._each):
                while not self._over.is_set() and not self._sent(connection, number):
                    self.again += 1
                    time.sleep(0.02)

    def _sent(self, connection: httpx.Client, number: int) -> bool:
        headers = {"Idempotency-Key": f"number-{number}"} if self._keys else {}
        try:
            answer = connection.post(self._url, json={"id": number}, headers=headers)
        except httpx.TransportError:
            return False
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 200:
            self.taken.append(number)
        return answer.status_code == 200

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    @contextmanager
    def sending(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()
