"""What tasks ask of the world outside: the clock, random seeds, clients of services, and storage for large answers."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import Any

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.ids import TaskId
from clonos_py.runtime.clock import time_of_day_us
from clonos_py.runtime.storage_waits import until_answered
from clonos_py.services.registry import ServiceRegistry


class StoredAnswers:
    """The environment of one task for large answers: they are kept in checkpoint storage."""

    def __init__(self, open_store: Callable[[], SnapshotStore], task: TaskId, number: int = 0) -> None:
        """``open_store`` is called once, for the first answer. ``number``: that of the process."""
        self._open_store, self._task, self._number = functools.cache(open_store), task, number

    def keep(self, epoch: int, content: bytes) -> str:
        return until_answered(lambda: self._open_store().keep_answer(epoch, self._task, self._number, content))

    def kept(self, name: str) -> bytes:
        return until_answered(lambda: self._open_store().kept_answer(name))


class LiveEnvironment(StoredAnswers):
    """The environment of one task in a real run."""

    def __init__(
        self, services: ServiceRegistry, open_store: Callable[[], SnapshotStore], task: TaskId, number: int = 0
    ) -> None:
        super().__init__(open_store, task, number)
        self._services = services

    def now_us(self) -> int:
        return time_of_day_us()

    def seed(self) -> int:
        return secrets.randbits(64)

    def service(self, name: str) -> Any:
        return self._services.client(name)
