"""Checkpoint protocols by name. Each has a side in the tasks, one in the coordinator and, where that of all others is
not enough, one in the links; they register here."""

from __future__ import annotations

import importlib
from typing import Generic, TypeVar

from clonos_py.model.errors import SettingError

T = TypeVar("T")

ALIGNED = "aligned"
"""Coordinated checkpoints with aligned barriers."""
UNALIGNED = "unaligned"
"""Coordinated checkpoints of which no task waits for barriers; frames under way are stored (E4)."""
UNCOORDINATED = "uncoordinated"
"""Each task takes its snapshots alone; frames and determinants between them are stored (E5)."""
INDUCED = "communication-induced"
"""As uncoordinated; and a task takes a snapshot before it takes frames that could make an earlier one useless (E10)."""
ALONE = (UNCOORDINATED, INDUCED)
"""Those in which each task takes its snapshots alone."""
PROTOCOLS = (ALIGNED, UNALIGNED, UNCOORDINATED, INDUCED)
"""The names that a setting may choose; both sides of each are registered under it."""


class ProtocolSides(Generic[T]):
    """One side of all protocols: what makes an object of it."""

    def __init__(self, default: T | None = None) -> None:
        """``default``: the side of protocols that have none of their own."""
        self._sides: dict[str, T] = {}
        self._default = default

    def register(self, name: str, side: T) -> None:
        """``name`` without a dot, or the module that registers this side when it is imported."""
        self._sides[name] = side

    def of(self, name: str) -> T:
        """Imports the module of that name, if it has not been. Raises SettingError for a protocol that is not there."""
        if name not in self._sides and "." in name:
            importlib.import_module(name)
        side = self._sides.get(name, self._default)
        if side is None:
            known = ", ".join(sorted(self._sides))
            raise SettingError(f"there is no checkpoint protocol {name!r}: choose one of {known}")
        return side
