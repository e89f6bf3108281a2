"""Checkpoint protocols by name. Each registers a side in the tasks, one in the coordinator and, if the default is not
enough, one in the links."""

from __future__ import annotations

import importlib
from typing import Generic, TypeVar

from clonos_py.model.errors import SettingError

T = TypeVar("T")

ALIGNED = "aligned"
"""Coordinated checkpoints with aligned barriers."""
UNALIGNED = "unaligned"
"""Coordinated checkpoints in which no task waits for barriers; frames in flight are stored (E4)."""
UNCOORDINATED = "uncoordinated"
"""Each task takes its snapshots alone; frames and determinants between them are stored (E5)."""
INDUCED = "communication-induced"
"""Uncoordinated, and a task takes a snapshot before frames that could make an earlier one useless (E10)."""
ALONE = (UNCOORDINATED, INDUCED)
"""The protocols in which each task takes its snapshots alone."""
PROTOCOLS = (ALIGNED, UNALIGNED, UNCOORDINATED, INDUCED)
"""The names that a setting may choose; the sides of each protocol are registered under it."""


class ProtocolSides(Generic[T]):
    """The implementations of one side of all protocols, by protocol name."""

    def __init__(self, default: T | None = None) -> None:
        """``default``: the side of protocols that do not register one."""
        self._sides: dict[str, T] = {}
        self._default = default

    def register(self, name: str, side: T) -> None:
        """``name``: one without a dot, or the path of the module that registers this side when it is imported."""
        self._sides[name] = side

    def of(self, name: str) -> T:
        """The side of a protocol; imports its module if needed. Raises SettingError for an unknown protocol."""
        if name not in self._sides and "." in name:
            importlib.import_module(name)
        side = self._sides.get(name, self._default)
        if side is None:
            known = ", ".join(sorted(self._sides))
            raise SettingError(f"there is no checkpoint protocol {name!r}: choose one of {known}")
        return side
