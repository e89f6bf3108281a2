"""Metrics of a task: rows, counters, latency markers. None of them is part of the computation."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.process.contract import FromTask, Observed
from clonos_py.task.context import TaskContext
from clonos_py.task.outputs import Outputs

MARKER_INTERVAL_US = 100_000
"""A source sends at most one latency marker in this time. For a paced source the time is that of its schedule: while it
catches up it sends the markers that are overdue, each with its delay."""


class TaskMetrics:
    """Forwards markers to the outputs, and passes measurements to ``tell``."""

    def __init__(self, shared: TaskContext, outputs: Outputs, sinks: bool, tell: Callable[[FromTask], None]) -> None:
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
        """Reports the operators' counters, if they have changed."""
        if self._shared.counted:
            self._tell(Observed(counts=dict(self._shared.counts)))
            self._shared.counted = False

    def marker(self, marker_us: int, channel: int = -1, seq: int = -1) -> None:
        if marker_us:
            self._outputs.mark(marker_us)
            if self._sinks:
                self._tell(Observed(marker_us=marker_us, input=channel, seq=seq))

    def source_marker(self, now_us: int, due_us: int) -> None:
        """A source has read rows that were due at ``due_us`` (0: unpaced). Sends a marker if it is time; its latency
        counts from when the rows were due."""
        created_us = due_us or now_us
        if created_us - self._marked_us >= MARKER_INTERVAL_US:
            self._marked_us = created_us
            self.marker(created_us)
