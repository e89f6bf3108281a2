"""Retries requests while a cluster is unreachable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from clonos_py.connectors.kafka.client import Failure, KafkaFailure
from clonos_py.model.errors import SinkError

T = TypeVar("T")

_RETRY_S = 0.2


class Retries:
    """Retries the requests of one sink. ``where``: the place named in errors."""

    def __init__(self, where: str, away_s: float) -> None:
        self._where, self._away_s = where, away_s

    def run(self, call: Callable[[], T], drop: Callable[[], None]) -> T:
        """Retries a call after failures that may pass; calls ``drop`` before each retry, which closes the clients.
        Raises SinkError."""
        since: float | None = None
        while True:
            try:
                return call()
            except KafkaFailure as failure:
                drop()
                now = time.monotonic()
                since = now if since is None else since
                if failure.kind is Failure.REFUSED or now - since > self._away_s:
                    raise SinkError(f"{self._where}: {failure.kind.value}: {failure}") from None
            time.sleep(_RETRY_S)
