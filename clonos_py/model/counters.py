"""The counters of a process since its start, which are sent with every answer to a heartbeat."""

from __future__ import annotations

import msgspec

from clonos_py.model.ids import Attempt
from clonos_py.model.state import StateSize
from clonos_py.model.user_metrics import UserMetric


class EventTimesRead(msgspec.Struct, frozen=True):
    """The earliest and the latest event time that a source has read, or that an operator behind it has assigned."""

    source: str
    column: str
    earliest_us: int
    latest_us: int


class SavedParts(msgspec.Struct, frozen=True):
    """The state that a task has saved in parts, at its last snapshot (CEC)."""

    open: int
    """Windows or keys with state."""
    extent: int
    """Footprints that a restart reads."""
    replay_rows: int
    """Rows of input that a restart takes again."""
    target_missed: str = ""
    """The setting whose target is not met; empty if there is none."""


class ProcessCounters(msgspec.Struct, frozen=True):
    """Totals since the process started, and its current state. Fields that do not apply are 0 or None."""

    active: bool = False
    """Whether the process is its task. False: it is a standby."""
    attempt: Attempt | None = None
    """None: it is a standby."""
    rows_in: int = 0
    """Rows received, or input events read by a source."""
    rows_replayed: int = 0
    """Rows in that a predecessor had also processed, replayed from its log; part of ``rows_in``."""
    rows_out: int = 0
    lag_us: int | None = None
    """How far the watermark was behind the time at which the last rows were read; None before there is a watermark."""
    rows_waiting: int | None = None
    """Of a source: the approximate number of rows that were not read yet at its last read; None if unknown."""
    bytes_kept: int | None = None
    """Of a source: what a server kept for it at its last read, since no checkpoint covers it; None if nothing is kept
    for it."""
    frames_queued: int = 0
    """Frames cut and not yet taken by connected receivers, which back-pressure counts."""
    held_back: bool = False
    """Whether it may not produce, since receivers or its own memory are full."""
    frames_sent: int = 0
    frames_at_stake: int = 0
    """Frames sent since the restart point; of a task without outputs, frames received."""
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
    feed_bytes: int = 0
    """Bytes sent to standbys, determinants not counted."""
    fed_bytes: int = 0
    """Of a standby: the state and the retained frames that it has of its task's feed."""
    standby_lag_us: int | None = None
    """How far its standbys were behind when they loaded the last feed point; None if they are not fed."""
    saved_parts: SavedParts | None = None
    """None if the task does not save its state in parts, or has not yet."""
    cpu_us: int = 0
    """Processor time; 0 where tasks have no processes of their own, as for the next four."""
    resident_bytes: int = 0
    """Memory of the process, with the libraries that it shares with others."""
    alive_us: int = 0
    """How long the task's thread has run."""
    idle_us: int = 0
    """How long of that it has waited for input, timers or answers."""
    held_back_us: int = 0
    """How long of that it has waited while ``held_back``."""
    state: dict[str, StateSize] = {}
    """By operator with state: its size in the last snapshot."""
    counts: dict[str, int] = {}
    """By ``operator.counter``: counts since the job's first run; users choose the names of operators."""
    metrics: dict[str, UserMetric] = {}
    """By ``operator.name``: metrics of users' functions since the job's first run."""
    event_times: list[EventTimesRead] = []
    """Of a source, since the process started; approximate, to a second."""
    latency: dict[int, int] = {}
    """By bucket of a ``LatencyHistogram``: the latency markers that reached it."""
    worst_latency: dict[int, int] = {}
    """By number of a window of ``LATENCY_WINDOW_US``, of the clock of the run: the highest latency of the markers that
    reached it, in microseconds."""
