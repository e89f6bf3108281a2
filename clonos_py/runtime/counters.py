"""Counters of a task's process: rows, operators' counts and latencies. Each answer to a heartbeat carries them."""

from __future__ import annotations

import msgspec

from clonos_py.model.counters import EventTimesRead, ProcessCounters, SavedParts
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import UserMetric
from clonos_py.observe.metrics import LatencyHistogram, WorstLatencies
from clonos_py.process.contract import Observed


class Counters:
    """Totals since the process began. Operators' counts and users' metrics are part of the task's snapshots, so that a
    replay does not count twice.

    Used by one thread only. The caller supplies the time, which may be virtual."""

    def __init__(self) -> None:
        self._rows_in = 0
        self._rows_replayed = 0
        self._rows_out = 0
        self._counts: dict[str, int] = {}
        self._metrics: dict[str, UserMetric] = {}
        self._lag_us: int | None = None
        self._rows_waiting: int | None = None
        self._bytes_kept: int | None = None
        self._standby_lag_us: int | None = None
        self._saved_parts: SavedParts | None = None
        self._event_times: dict[tuple[str, str], EventTimesRead] = {}
        self._latency = LatencyHistogram()
        self._worst = WorstLatencies()

    def observe(self, event: Observed, now_us: int) -> None:
        self._rows_in += event.events
        self._rows_replayed += event.events if event.replayed else 0
        self._rows_out += event.rows_out
        if event.watermark != MIN_TIME:
            self._lag_us = now_us - event.watermark
        if event.rows_waiting is not None:
            self._rows_waiting = event.rows_waiting
        if event.bytes_kept is not None:
            self._bytes_kept = event.bytes_kept
        if event.standby_lag_us is not None:
            self._standby_lag_us = event.standby_lag_us
        if event.saved_parts is not None:
            self._saved_parts = event.saved_parts
        for read in event.event_times:
            self._event_times[read.source, read.column] = read
        if event.counts or event.metrics:
            self._counts, self._metrics = dict(event.counts), dict(event.metrics)
        if event.marker_us:
            self._latency.record(now_us - event.marker_us)
            self._worst.record(now_us, now_us - event.marker_us)

    def added_to(self, counters: ProcessCounters) -> ProcessCounters:
        """``counters`` of the link of the same process, with these counts added."""
        return msgspec.structs.replace(
            counters,
            rows_in=self._rows_in,
            rows_replayed=self._rows_replayed,
            rows_out=self._rows_out,
            lag_us=self._lag_us,
            rows_waiting=self._rows_waiting,
            bytes_kept=self._bytes_kept,
            standby_lag_us=self._standby_lag_us,
            saved_parts=self._saved_parts,
            counts=dict(self._counts),
            metrics=dict(self._metrics),
            event_times=list(self._event_times.values()),
            latency=self._latency.counts,
            worst_latency=dict(self._worst.windows),
        )
