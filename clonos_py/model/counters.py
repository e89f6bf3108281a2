"""What a process has counted since it began, as it travels with every heartbeat's answer."""

from __future__ import annotations

import msgspec


class EventTimesRead(msgspec.Struct, frozen=True):
    """The earliest and the latest event time that a source has read, or an operator behind it has assigned."""

    source: str
    column: str
    earliest_us: int
    latest_us: int


class ProcessCounters(msgspec.Struct, frozen=True):
    """Totals since the process began, and how it stands now. What does not apply where it was counted is 0 or None."""

    active: bool = False
    """Whether the process is its task. False: it stands by."""
    rows_in: int = 0
    """Rows received, or input events read by a source."""
    rows_replayed: int = 0
    """Rows in that a predecessor had handled, too, from its log; part of ``rows_in``."""
    rows_out: int = 0
    lag_us: int | None = None
    """How far the watermark was behind the time at which the last rows were read; None before any is known."""
    rows_waiting: int | None = None
    """Of a source: about how many rows were there and not read when it read last; None where it does not know."""
    frames_queued: int = 0
    """Cut and not yet taken by connected receivers: what back-pressure counts."""
    held_back: bool = False
    """Whether it may not produce, since receivers or its own memory are full."""
    frames_sent: int = 0
    frames_at_stake: int = 0
    """Frames sent since the restart point; of a task that sends none, frames received."""
    data_bytes: int = 0
    """Bytes of rows sent."""
    determinant_bytes: int = 0
    """Bytes of determinants sent."""
    stamp_bytes: int = 0
    """Bytes of the checkpoint protocol's stamps sent."""
    in_flight_bytes: int = 0
    """Retained frames in memory."""
    spilled_bytes: int = 0
    """Retained frames on disk."""
    log_bytes: int = 0
    """Determinants held."""
    cpu_us: int = 0
    """Processor time; 0 where tasks have no processes of their own."""
    counts: dict[str, int] = {}
    """What operators have counted since the job's first run, by ``operator.counter``: users choose these names."""
    event_times: list[EventTimesRead] = []
    """Of a source, since the process began; approximately, to a second."""
    latency: dict[int, int] = {}
    """Of the markers that reached it, by bucket of a ``LatencyHistogram``."""
