"""The events of a task machine that a test steps, and values derived from them."""

from __future__ import annotations

from typing import Any, TypeVar

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Determinant
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Produced
from clonos_py.task.machine import TaskMachine

K = TypeVar("K")


class Given:
    """Everything is in ``events``."""

    machine: TaskMachine

    def __init__(self) -> None:
        self.events: list[Any] = []

    def of(self, kind: type[K]) -> list[K]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def segments(self) -> list[LogSegment]:
        """The whole log. Entries that no frame depends on yet are handed over for this."""
        if (rest := self.machine._writer.cut()) is not None:
            self.events.append(Produced(rest, ()))
        return [event.log for event in self.of(Produced) if event.log is not None]

    @property
    def log(self) -> list[Determinant]:
        codec = LogCodec()
        return [determinant for segment in self.segments for determinant in codec.load(segment)]
