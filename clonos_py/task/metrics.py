"""Metrics of a task: rows, counters, latency markers. None of them affects the computation."""

from __future__ import annotations

from clonos_py.process.contract import Observed, Produced
from clonos_py.task.context import TaskContext
from clonos_py.task.outputs import Outputs
from clonos_py.task.time_extents import TimeExtents

MARKER_INTERVAL_US = 100_000
"""A source sends at most one latency marker per interval. For a paced source the interval is measured on its schedule:
while it catches up, it sends the overdue markers, each with its delay."""


class TaskMetrics:
    """Forwards latency markers to the outputs, and returns measurements as events."""

    def __init__(self, shared: TaskContext, outputs: Outputs, sinks: bool) -> None:
        """``sinks``: whether the task has sinks, at which markers end."""
        self._shared, self._outputs, self._sinks = shared, outputs, sinks
        self._marked_us = 0
        self.rows_replayed = 0

    def took(
        self,
        rows: int,
        watermark: int,
        replaying: bool,
        rows_waiting: int | None = None,
        bytes_kept: int | None = None,
    ) -> Observed:
        """The measurement before ``rows`` rows, or events of a source, enter the operators."""
        if replaying:
            self.rows_replayed += rows
        return Observed(
            events=rows, watermark=watermark, replayed=replaying, rows_waiting=rows_waiting, bytes_kept=bytes_kept
        )

    def event_times(self, extents: TimeExtents) -> list[Observed]:
        """The range of event times read, if it has grown much since the last report."""
        grown = extents.grown()
        return [Observed(event_times=grown)] if grown else []

    def cut(self, produced: Produced) -> Observed:
        """The measurement of frames that leave the task."""
        return Observed(rows_out=sum(frame.rows.num_rows for _, frame in produced.frames if frame.rows is not None))

    def counters(self) -> list[Observed]:
        """The operators' counters and the users' metrics, if they have changed."""
        if not self._shared.counted:
            return []
        self._shared.counted = False
        return [Observed(counts=dict(self._shared.counts), metrics=dict(self._shared.metrics))]

    def marker(self, marker_us: int, channel: int = -1, seq: int = -1) -> list[Observed]:
        """Forwards a latency marker that a frame carried; 0 means none."""
        if not marker_us:
            return []
        self._outputs.mark(marker_us)
        return [Observed(marker_us=marker_us, input=channel, seq=seq)] if self._sinks else []

    def source_marker(self, now_us: int, due_us: int) -> list[Observed]:
        """Sends a marker if the interval has passed. A source has read rows that were due at ``due_us`` (0: unpaced);
        the marker's latency counts from then."""
        created_us = due_us or now_us
        if created_us - self._marked_us < MARKER_INTERVAL_US:
            return []
        self._marked_us = created_us
        return self.marker(created_us)
