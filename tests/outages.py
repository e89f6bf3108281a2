"""A listener that cuts a running job off its object store, and ends the job once its checkpoints have resumed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted, StorageAwaited
from clonos_py.observe.events import Event, Progress
from tests.s3_server import S3Server

E = TypeVar("E", bound=Event)


def nothing() -> None:
    """What happens during an outage besides."""


class Outages:
    """After a checkpoint behind some rows the store is cut off, and ``during`` happens. It answers again when
    ``enough`` of the outage was seen: data has gone on, and a checkpoint has failed or has to wait. This is repeated
    for each of ``during``. After another checkpoint the rows that are left come at once."""

    def __init__(
        self,
        server: S3Server,
        unpaced: Path,
        during: Sequence[Callable[[], object]] = (nothing,),
        enough: Callable[[Outages], object] = lambda outages: True,
        lasts_us: int = 0,
    ) -> None:
        self.events: list[Event] = []
        self.rows_meanwhile: list[int] = []
        """How many rows were read during each outage."""
        self.since = 0
        """The number of the first event since the last outage has begun."""
        self._server, self._unpaced, self._enough, self._lasts_us = server, unpaced, enough, lasts_us
        self._during = list(during)
        self._cut: tuple[int, int] | None = None
        """During an outage: when it began, and how many rows had been read then."""
        self._rows = 0

    def of(self, kind: type[E]) -> list[E]:
        """The events of this kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def lately(self, *kinds: type[Event]) -> bool:
        """Whether an event of these kinds has happened since the last outage began."""
        return any(isinstance(event, kinds) for event in self.events[self.since :])

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Progress):
            self._rows = sum(seen.rows_in for seen in event.vertices if seen.vertex == "numbers")
        if self._cut is not None:
            self._look(at_us, *self._cut)
        elif isinstance(event, CheckpointCompleted) and self._during and self._rows > 0:
            self._cut, self.since, self._server.cut_off = (at_us, self._rows), len(self.events), True
            threading.Thread(target=self._during.pop(0), daemon=True).start()
        elif isinstance(event, CheckpointCompleted) and not self._during:
            self._unpaced.touch()

    def _look(self, at_us: int, since_us: int, rows_before: int) -> None:
        failed = self.lately(CheckpointAborted, StorageAwaited)
        if self._rows > rows_before and failed and at_us >= since_us + self._lasts_us and self._enough(self):
            self.rows_meanwhile.append(self._rows - rows_before)
            self._cut = None
            self._server.heal()
