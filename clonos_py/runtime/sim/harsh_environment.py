"""The services outside of the tasks of generated runs: clocks that are set, services whose answers always differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import ServiceError
from clonos_py.model.ids import TaskId
from clonos_py.runtime.operator_environment import StoredAnswers

ORACLE = "oracle"
LARGE = "large"
"""The service of this name returns answers that are too large for a log."""
_LARGE_BYTES = 66_000
_REFUSALS = 0.1


class HarshEnvironment(StoredAnswers):
    """The environment of one process. No answer is repeated, and some calls are refused."""

    def __init__(self, now_us: Callable[[], int], random_: random.Random, store: SnapshotStore, task: TaskId) -> None:
        super().__init__(lambda: store, task)
        self._now_us, self._random = now_us, random_
        self.ahead_us = 0
        """How far the time of day is ahead of the steady clock."""

    def now_us(self) -> int:
        return self._now_us() + self.ahead_us

    def seed(self) -> int:
        return self._random.getrandbits(63)

    def service(self, name: str) -> Any:
        return self._large if name == LARGE else self._bits

    def _bits(self) -> int:
        if self._random.random() < _REFUSALS:
            raise ServiceError("not now")
        return self._random.getrandbits(62)

    def _large(self) -> bytes:
        return self._bits().to_bytes(8) + bytes(_LARGE_BYTES)
