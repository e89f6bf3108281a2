"""What people are shown of a task's work: rows, counters, latency markers. Nothing of it is part of the computation."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.task.context import Shared
from clonos_py.task.events import FromTask, Observed
from clonos_py.task.outputs import Outputs

MARKER_INTERVAL_US = 100_000
"""A source sends a latency marker at most this often; one with a schedule for so much of its schedule, so that a source
that catches up sends those that it owes, each late by what it was late."""


class Sightings:
    """Passes markers on to the outputs, and what is seen to ``tell``."""

    def __init__(self, shared: Shared, outputs: Outputs, sinks: bool, tell: Callable[[FromTask], None]) -> None:
        """``sinks``: whether markers end here."""
        self._shared, self._outputs, self._sinks, self._tell = shared, outputs, sinks, tell
        self._marked_us = 0
        self.rows_replayed = 0

    def took(self, rows: int, watermark: int, replaying: bool) -> None:
        """So many rows, or events of a source, are about to enter the operators."""
        if replaying:
            self.rows_replayed += rows
        self._tell(Observed(events=rows, watermark=watermark, replayed=replaying))

    def cut(self, rows: int) -> None:
        self._tell(Observed(rows_out=rows))

    def counters(self) -> None:
        """Tells what operators have counted, if that has changed."""
        if self._shared.counted:
            self._tell(Observed(counts=dict(self._shared.counts)))
            self._shared.counted = False

    def marker(self, marker_us: int, channel: int = -1, seq: int = -1) -> None:
        if marker_us:
            self._outputs.mark(marker_us)
            if self._sinks:
                self._tell(Observed(marker_us=marker_us, input=channel, seq=seq))

    def source_marker(self, now_us: int, due_us: int) -> None:
        """A source has read what was ``due_us`` (0: unpaced): from time to time that is worth a marker, whose latency
        counts from when its rows should have been read."""
        created_us = due_us or now_us
        if created_us - self._marked_us >= MARKER_INTERVAL_US:
            self._marked_us = created_us
            self.marker(created_us)
