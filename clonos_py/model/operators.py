"""What an operator, a source and a sink are to the task that runs them: contracts without an implementation.

An operator is called by one thread, never concurrently, in the order ``open``, then ``restore`` (any number of
times, each replacing all state: a standby swaps in newer snapshots), then ``on_*`` and ``snapshot`` in any order.
Its contract (D12): given state, rows and the answers of its context, it always emits the same rows in the same order.
Nothing in it may read a clock, a random generator, the network or the iteration order of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clonos_py.model.errors import CheckpointError
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME

if TYPE_CHECKING:
    import random

    import pyarrow as pa

    from clonos_py.model.ids import Attempt, TaskId
    from clonos_py.model.segments import LogSegment


class Output(Protocol):
    """Where an operator puts its results."""

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """Hands rows (of the port's declared schema, any number) to whatever follows. Rows are immutable from here."""
        ...


class ServiceGate(Protocol):
    """The one door through which nondeterminism enters (D4), as services see it."""

    def ask(self, kind: str, live: Any) -> Any:
        """Running: the value of ``live()``, logged as an answer of ``kind``. Replaying: the value logged at this place.

        The value is plain data (None, bool, int, float, str, bytes, list, dict). If ``live`` raises ServiceError,
        that is logged and raised again on replay.
        """
        ...


class Clock(Protocol):
    """``ctx.time``."""

    def now(self) -> int:
        """Wall-clock time in microseconds UTC, logged."""
        ...


class OperatorContext(Protocol):
    """What the task offers to an operator. Valid from ``open`` on; services only inside ``on_*``."""

    @property
    def task(self) -> TaskId: ...

    @property
    def operator(self) -> str:
        """The operator's stable name (P3)."""
        ...

    @property
    def parallelism(self) -> int: ...

    @property
    def groups(self) -> range:
        """The key groups this instance owns."""
        ...

    @property
    def key_groups(self) -> int:
        """Number of key groups of the job."""
        ...

    @property
    def watermark(self) -> int:
        """Event time up to which input is complete; MIN_TIME before any is known."""
        ...

    @property
    def frame(self) -> tuple[int, int]:
        """(input channel index, sequence number) of the frame at work, (-1, n) for the n-th other event: for
        idempotency keys (D16) and error messages."""
        ...

    @property
    def numbering(self) -> str:
        """Names how the frames of this run are numbered: the job's lineage of checkpoints, and how often a change of
        parallelism has numbered frames from 0 again. The same for all attempts of a task; empty before it has begun."""
        ...

    @property
    def time(self) -> Clock: ...

    @property
    def random(self) -> random.Random:
        """Seeded through the log once per epoch."""
        ...

    @property
    def gate(self) -> ServiceGate:
        """For services; user code does not call it."""
        ...

    def service(self, name: str) -> Any:
        """The client of a service (``"http"`` or the name of a user's service), opened inside this task."""
        ...

    def set_timer(self, at: int) -> None:
        """Asks for ``on_timer(at)`` once the processing time has reached ``at`` (microseconds). Setting it twice is
        setting it once. Timers are not part of the operator's snapshot: ``restore`` sets them again."""
        ...

    def clear_timer(self, at: int) -> None: ...

    def start_call(self, number: int, service: str, question: Any) -> None:
        """Asks for ``on_answer(number, ...)`` once the service has answered. Nothing is called before the replay is
        over, and nothing that the log has an answer to. Like timers, calls are no part of the operator's snapshot."""
        ...

    def forget_call(self, number: int) -> None:
        """Its answer is not wanted any more."""
        ...

    def hold(self, any_: bool, enough: bool) -> None:
        """Whether the operator has rows that it has not finished with: before it has, the task does not end. And
        whether these are enough: while they are, the task takes no others."""
        ...

    def count(self, metric: str, amount: int) -> None:
        """Adds to a counter shown to the user, such as ``late_rows``. Has no effect on results."""
        ...


class Operator:
    """Base of all operators: keeps no state, passes watermarks on. Subclasses override what they need."""

    ctx: OperatorContext
    out: Output

    def open(self, ctx: OperatorContext, out: Output) -> None:
        self.ctx, self.out = ctx, out

    def close(self) -> None:
        """Releases what ``open`` took. Called at most once, not after a kill."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        """Takes rows of input ``side`` (0 for one input; 0 left, 1 right for a join). The batch is an atom."""
        raise NotImplementedError

    def on_watermark(self, watermark: int) -> int:
        """Event time has advanced to ``watermark`` (no row below it will come, save late ones); emits what is due.

        Returns the watermark that holds for what this operator has emitted, at most ``watermark``. At the end of all
        input it is called with MAX_TIME, so that windows close.
        """
        return watermark

    def on_timer(self, at: int) -> None:
        """A processing-time timer set by ``ctx.set_timer(at)`` has fired."""

    def on_answer(self, number: int, value: Any, error: str | None) -> None:
        """The call of this number, asked for by ``ctx.start_call``, is answered."""

    def released(self) -> int:
        """After a timer or an answer: the watermark that now holds for what was emitted. MIN_TIME where
        ``on_watermark`` holds nothing back."""
        return MIN_TIME

    def on_end(self) -> None:
        """All inputs have ended; called once, after ``on_watermark(MAX_TIME)``. Emits what is left."""

    def snapshot(self) -> OperatorState:
        """The state now. Cheap: chunks are referenced, only what changed since the last snapshot is made again."""
        return OperatorState()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """Replaces the state by ``parts``: one snapshot for an unchanged parallelism, else those of all former
        instances that may hold rows of ``ctx.groups`` (other groups' rows are filtered out here)."""


class Committing(Protocol):
    """What commits with completed checkpoints: a sink, or a source that tells others how far it has come."""

    @property
    def remote(self) -> bool:
        """Whether calls wait for a server."""
        ...

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits all that a completed checkpoint names, oldest first. Raises ClonosError."""
        ...

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """The snapshots that ``restore`` will get."""
        ...


class Sink(Operator):
    """An operator without output. The defaults serve sinks whose effect needs no commit (memory, print, digest)."""

    remote = False
    """Whether ``commit``, ``claim`` and ``append`` wait for a server."""

    def prepare(self, checkpoint: int) -> bytes | None:
        """At the barrier, before ``snapshot``: makes durable what was written since the last barrier and names it.

        None if there is nothing to commit. The name goes into the manifest.
        """
        return None

    def commit(self, committable: bytes) -> None:
        """Makes what ``prepare`` named visible. Idempotent; may be called in another process and thread than
        ``prepare`` was, after ``open``. Raises SinkError."""

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits all that a completed checkpoint names, oldest first. Raises SinkError."""
        for committable in committables:
            self.commit(committable)

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """The snapshots that ``restore`` will get, called before by the thread that commits: what the checkpoint names
        may be committed before the task has restored them."""


class EventTimeAssigner(Operator):
    """An operator that works at once on what the source of its task reads, and gives its rows their event time. The
    task says from partition to partition what was seen of each, and what watermark that comes to."""

    column: str
    out_of_order_us: int

    def take_extent(self) -> tuple[int, int] | None:
        """The earliest and the latest event time of the rows since the last call; None if there were none."""
        raise NotImplementedError

    def reach(self, watermark: int) -> None:
        """The watermark that now holds for what was emitted: ``released`` gives it."""
        raise NotImplementedError


class OutputSegment(NamedTuple):
    """Rows as they leave a causal sink, numbered; ``checksum`` is of the rows."""

    seq: int
    checksum: int
    rows: pa.RecordBatch


class PublishedOutput(NamedTuple):
    """What an output holds: determinants, and by number the checksums of the pieces that are out."""

    log: Sequence[LogSegment]
    checksums: Mapping[int, int]


class CausalSink(Sink):
    """A sink whose output is a holder of determinants, and therefore visible at once (Clonos, section 5.5; D16).

    Its rows are numbered in pieces, like the frames of a channel whose receiver never dies. Subclasses know the medium;
    ``claim`` and ``append`` are called by one thread, which need not be the task's.
    """

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self.out.emit(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def claim(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        """Takes the output over from all earlier attempts, none of which can add to it any more. What it holds since
        ``checkpoint``, the last complete one. ``shape``: the job's vertices, with their operators and parallelism;
        what tasks of another shape have written since then could not be repeated. ``lineage``: of the job's
        checkpoints; what a run before ``--fresh`` has written is of another. Raises SinkError."""
        raise NotImplementedError

    def append(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        """Makes ``log`` durable, then ``pieces`` visible. ``epoch``: the checkpoint taken last; the first log of an
        epoch is complete from there on. Raises SinkError."""
        raise NotImplementedError

    def settle(self) -> None:
        """Before a snapshot: makes durable what is visible. Raises SinkError."""

    def forget(self, checkpoint: int) -> None:
        """``checkpoint`` is complete: logs of earlier epochs are not needed any more."""
        raise NotImplementedError

    def prepare(self, checkpoint: int) -> bytes | None:
        return b"%d" % checkpoint

    def commit(self, committable: bytes) -> None:
        if not committable.isdigit():
            raise CheckpointError(
                f"the checkpoint names {committable!r} as output of operator {self.ctx.operator!r}: its manifest is "
                "damaged, or the sink had another delivery; restore it from a copy, resume with that delivery, or "
                "start over with --fresh"
            )
        self.forget(int(committable))


class Read(NamedTuple):
    """What one poll of a source gave: ``rows[port]`` (None where the port got nothing) at offsets [start, stop)."""

    partition: int
    start: int
    stop: int
    rows: tuple[pa.RecordBatch | None, ...]
    checksum: int = 0
    """Of what was read, as cheap as the source can make it; compared on replay."""
    events: int = -1
    """Input events covered, for throughput; -1: the number of rows."""
    last: bool = False
    """The partition is exhausted: it no longer holds watermarks back. A reread says the same."""
    due_us: int = 0
    """When a paced source should have read this (processing time); latency counts from there. 0: unpaced."""
    counts: Mapping[str, int] = {}
    """Counters that are shown to the user as the source's own, such as ``rows_skipped``, and what to add to each."""
    note: Any = None
    """Of a source whose rows are logged: plain data that is logged with them and comes back with ``passed``."""

    @property
    def row_count(self) -> int:
        return sum(rows.num_rows for rows in self.rows if rows is not None)

    @property
    def event_count(self) -> int:
        return self.events if self.events >= 0 else self.row_count

    @property
    def size_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows if rows is not None)


class Wait(NamedTuple):
    """Nothing to read before processing time ``until`` (microseconds)."""

    until: int


class End(NamedTuple):
    """Every partition of this instance is exhausted."""


class Discovered(NamedTuple):
    """Partitions of this instance that are read from now on, each with its first offset; said again until
    ``discovered`` is called. None: the instance has no partition for now, and holds no event time back."""

    starts: Mapping[int, int]


class Source:
    """Reads partitions. One object per task; partition p belongs to instance p % parallelism.

    Offsets are 64-bit integers of the source's own choosing (rows, bytes, event numbers) that only grow.
    """

    logs_rows = False
    """Whether the source may have other rows at the same offsets later. Then they are logged with each read, and a
    replay takes them from the log."""
    consumes = False
    """Whether rows are gone where they came from once they are read: ``clonos check`` makes rows up instead."""

    def passed(self, read: Read) -> None:
        """A replay has taken this read from the log. Called if the source ``logs_rows``, before ``seek``."""

    def wait_for_rows(self) -> bool:
        """For who reads a source whole, and was told to wait: blocks for a moment, until there may be more. False: the
        source need not end."""
        return False

    def partitions(self) -> int:
        """How many partitions the source has from the beginning, the same for every instance. Fixed by the first
        checkpoint. A source whose partitions become more has 0, and discovers all of them (``Discovered``)."""
        return 1

    def open(self, index: int, parallelism: int) -> None: ...

    def close(self) -> None: ...

    def notify(self, wake: Callable[[], None]) -> None:
        """Called before the first poll. A source that gets to know of new rows in a thread of its own calls ``wake``
        then, and is polled at once. It may be called by any thread, and costs little."""

    def snapshot(self) -> Any:
        """What is to be kept besides positions: plain data, the same for all instances; None if there is nothing."""
        return None

    def restore(self, saved: Any) -> None:
        """Called before ``seek`` with what ``snapshot`` gave. Raises SourceError if it is of another input."""

    def discovered(self, starts: Mapping[int, int]) -> None:
        """A poll has given these partitions, now or before the failure."""

    def commit(self, positions: Mapping[int, int]) -> None:
        """A checkpoint with these positions is complete; called if the definition ``commits``, by another thread, and
        again after a restart. Raises SourceError for what does not pass."""

    def rows_waiting(self) -> int | None:
        """About how many rows are there and were not read yet. None: it is not known."""
        return None

    def seek(self, positions: Mapping[int, int]) -> None:
        """Continue at these offsets, by partition (a partition not named starts at its beginning)."""
        raise NotImplementedError

    def limit(self, rows: int) -> None:
        """The next polls should give at most so many rows, since what follows is slow. A source that cannot cut its
        reads so may ignore it."""

    def poll(self, now: int) -> Read | Wait | End | Discovered:
        """The next piece, of whatever partition is next. Does not block. ``now``: microseconds of the run's steady
        clock, which begins at the time of day and is never set; ``Wait`` is until a time of the same clock."""
        raise NotImplementedError

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """The same piece again, exactly; afterwards the partition continues at ``stop``. Raises SourceError."""
        raise NotImplementedError


@dataclass(frozen=True)
class EventTime:
    """How a source's rows carry event time (P6). ``columns[port]`` is the int64 microseconds column, None without."""

    columns: tuple[str | None, ...]
    out_of_order_us: int = 0
    idle_us: int | None = None
