"""A simulated disk for retained frames that fails on request: the next frames that are written do not fit."""

from __future__ import annotations

from typing import Any

from clonos_py.model.errors import CapacityError
from clonos_py.runtime.spill import MemoryShelf


class Disk:
    """The disk that all processes share. Each process has its own shelf."""

    def __init__(self) -> None:
        self._failures = 0

    def fail_next(self) -> None:
        self._failures += 1

    def shelf(self, number: int) -> MemoryShelf:
        return _Shelf(self)

    def check(self) -> None:
        """Raises CapacityError if a failure was requested."""
        if self._failures:
            self._failures -= 1
            raise CapacityError("the simulated disk is full")


class _Shelf(MemoryShelf):
    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def write(self, body: Any) -> int:
        self._disk.check()
        return super().write(body)
