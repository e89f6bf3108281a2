"""The costs of work in a simulated cluster (E12): amounts of work in the events of processes, and a price for each.

A price is processor time (``WORK``), or a delay that uses no processor (``DELAYS``). Kinds of work without a price cost
nothing. The prices of frames, rows and KiB began as a fit to measured processor times of tasks on Ray, which ``python
-m clonos_py.bench prices`` repeats. These prices, and those of waking, starts, promotions, restored state and messages,
are set so that query 3 sends as many frames as on Ray, and its restarts and checkpoints take about as long. The prices
of stamps are estimates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from clonos_py.link.instructions import Acknowledged, Arrived, Persist, WriteFrames
from clonos_py.model.messages import Promote
from clonos_py.model.plan import Vertex
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRun, TaskSnapshot
from clonos_py.process.contract import FramesTaken, FromTask, Observed, Produced, RestoreState, SnapshotTaken
from clonos_py.runtime.executors.link import LinkInput


class Amount(NamedTuple):
    """An amount of one kind of work."""

    kind: str
    times: int = 1
    rows: int = 0
    size_bytes: int = 0


class Duty(Enum):
    """The kind of a task, which decides the price of its rows."""

    READ = "read"
    COMPUTE = "compute"
    KEEP = "keep"


def duty_of(vertex: Vertex) -> Duty:
    if vertex.source is not None:
        return Duty.READ
    return Duty.KEEP if any(operator.stateful for operator in vertex.operators) else Duty.COMPUTE


class UnitPrice(NamedTuple):
    """The price in microseconds: per unit of work, per row and per KiB."""

    each: float
    row: float = 0.0
    kib: float = 0.0

    def of(self, amount: Amount) -> float:
        return amount.times * self.each + amount.rows * self.row + amount.size_bytes / 1024 * self.kib


Prices = Mapping[str, UnitPrice]

WORK: Prices = {
    "read": UnitPrice(150, 0.02),
    "block": UnitPrice(3_000),
    "give": UnitPrice(0, 0.07),
    "take": UnitPrice(130),
    "compute": UnitPrice(0, 0.05),
    "keep": UnitPrice(350, 0.6),
    "cut": UnitPrice(180, 0, 0.5),
    "arrive": UnitPrice(150, 0, 0.3),
    "acknowledge": UnitPrice(30),
    "segment": UnitPrice(0, 0, 300.0),
    "stamp": UnitPrice(15, 0, 20.0),
    "snapshot": UnitPrice(2_000),
    "restore": UnitPrice(8_000, 0, 1.0),
    "start": UnitPrice(1_000_000),
    "host": UnitPrice(30_000),
    "promote": UnitPrice(25_000),
    "message": UnitPrice(1_000),
    "coordinate": UnitPrice(500),
}
"""Prices in processor time. ``read``: a read of a source and its events. ``block``: ``BLOCK_EVENTS`` events that a
source generates, or reads from a file, before it emits them in parts. ``give``: rows that a source makes of them.
``take``: frames that a task takes together. ``compute``: rows in a task's operators; ``keep``: rows in a stateful task,
where few rows cost hardly less than many. ``cut``: a frame, from the task until it is sent. ``arrive``: a frame, from
its arrival until the task can take it. ``segment``: log segments that arrive with a frame. ``stamp``: the vectors
in a frame's stamp. ``snapshot``: a task's snapshot, without the work of storage. ``restore``: state that
a process loads. ``start``: a process of the operating system, until a task can run in it; ``host``: a standby that
starts in an existing one. ``promote``: a process that begins as its task. ``message``: any other message from the
coordinator. ``coordinate``: any event that the coordinator handles."""

BACKGROUND = 0.025
"""The share of a processor that each task uses without work: heartbeats, its standby, Ray's own processes."""

WAKE_US = 140.0
"""Processor time of a process that begins to work after it was idle: to wake a thread and to fill its caches again.
While frames arrive without a pause, as in a replay, each costs that much less."""

DELAYS: Prices = {
    "network": UnitPrice(150, 0, 0.5),
    "queue": UnitPrice(20),
    "control": UnitPrice(4_000),
    "disk": UnitPrice(6_000, 0, 5.0),
    "start": UnitPrice(100_000),
    "retry": UnitPrice(50_000),
    "step": UnitPrice(0),
    "detect": UnitPrice(20_000),
    "call": UnitPrice(3_000),
}
"""Delays that use no processor: of messages, writes, starts and the detection of failures."""

BLOCK_EVENTS = 50_000


class Costs(NamedTuple):
    """The prices of a simulated cluster. ``rows_per_row``: the number of rows that each simulated row stands for."""

    work: Prices = WORK
    delays: Prices = DELAYS
    rows_per_row: int = 1
    background: float = BACKGROUND
    wake_us: float = WAKE_US

    def work_us(self, amounts: Iterable[Amount]) -> float:
        return sum(self.work[a.kind].of(self._weighed(a)) for a in amounts if a.kind in self.work)

    def delay_us(self, kind: str, what: object) -> int:
        return round(self.delays[kind].of(self._weighed(Amount(kind, size_bytes=size_bytes(what)))))

    def _weighed(self, amount: Amount) -> Amount:
        if not amount.rows:
            return amount
        return amount._replace(rows=amount.rows * self.rows_per_row, size_bytes=amount.size_bytes * self.rows_per_row)


class CostedTime:
    """A scheduler whose time jumps to the next action, and whose delays are those of ``costs``."""

    is_alone = True

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._now_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self._now_us

    def wait_until(self, time_us: int) -> int:
        self._now_us = max(self._now_us, time_us)
        return self._now_us

    def delay_us(self, kind: str, what: object = None) -> int:
        return self._costs.delay_us(kind, what)

    def arrived(self) -> Sequence[Callable[[], None]]:
        return ()


class WorkDone:
    """The work that has been done, by kind."""

    def __init__(self) -> None:
        self.times, self.rows, self.size_bytes = Counter[str](), Counter[str](), Counter[str]()

    def add(self, amounts: Iterable[Amount]) -> None:
        for kind, times, rows, size in amounts:
            self.times[kind] += times
            self.rows[kind] += rows
            self.size_bytes[kind] += size


# ---- amounts


def of_link_input(event: LinkInput) -> Iterator[Amount]:
    """The work of a link for an event. The step of its own task is charged when the task takes it."""
    match event:
        case Arrived(_, header, frame):
            rows = frame.rows
            yield Amount("arrive", 1, header.rows, 0 if rows is None else rows.nbytes)
            yield from _of_log(header.delta)
            yield from _of_stamp(header.meta)
        case Produced(_, frames):
            for _, frame in frames:
                rows = frame.rows
                yield Amount("cut", 1, 0 if rows is None else rows.num_rows, 0 if rows is None else rows.nbytes)
                yield from _of_stamp(frame.stamp)
        case Acknowledged():
            yield Amount("acknowledge")
        case FramesTaken() | SnapshotTaken():
            pass
        case Promote():
            yield Amount("promote")
        case _:
            yield Amount("message")


def of_step(produced: Iterable[FromTask], duty: Duty) -> Iterator[Amount]:
    """The work of a step that produced these events, for a task of this duty."""
    for event in produced:
        match event:
            case Observed() if event.events:
                yield Amount(duty.value, 1, event.events)
                if duty is Duty.READ:
                    yield Amount("give", 1, event.rows_out)
            case FramesTaken():
                yield Amount("take")
            case SnapshotTaken():
                yield Amount("snapshot")
            case _:
                pass


def of_state(item: RestoreState) -> Amount:
    """The work of loading state."""
    states = (state for parts in item.operators.values() for state in parts)
    rows = [chunk.rows for state in states for table in state.tables.values() for chunk in table]
    return Amount("restore", 1, sum(r.num_rows for r in rows), sum(r.nbytes for r in rows))


def size_bytes(what: object) -> int:
    """The size of a message or a write; 0 if it does not matter."""
    match what:
        case Arrived(_, header, frame):
            return (0 if frame.rows is None else frame.rows.nbytes) + len(header.meta) + _log_bytes(header.delta)
        case Persist():
            return _snapshot_bytes(what.snapshot)
        case WriteFrames():
            return sum(body.nbytes for _, body in what.bodies)
        case _:
            return 0


def _snapshot_bytes(snapshot: TaskSnapshot) -> int:
    """The size of the parts of a snapshot that are not stored yet."""
    tables = (table for state in snapshot.operators.values() for table in state.tables.values())
    chunks = sum(chunk.rows.nbytes for table in tables for chunk in table if chunk.location is None)
    runs = (run for parts in snapshot.frames.values() for run in parts if isinstance(run, FrameRun))
    frames = sum(body.size for run in runs for body in run.bodies if body is not None)
    return chunks + frames + _log_bytes(snapshot.logs) + len(snapshot.progress)


def _of_log(segments: Sequence[LogSegment]) -> Iterator[Amount]:
    if segments:
        yield Amount("segment", len(segments), 0, _log_bytes(segments))


def _of_stamp(stamp: bytes) -> Iterator[Amount]:
    if stamp:
        yield Amount("stamp", 1, 0, len(stamp))


def _log_bytes(segments: Sequence[LogSegment]) -> int:
    return sum(len(segment.payload) for segment in segments)
