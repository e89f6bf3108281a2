"""The interfaces of operators, sources and sinks to the task that runs them, without implementations.

An operator is called by one thread, never concurrently, in the order ``open``, then ``restore`` (any number of
times, each replacing all state: a standby swaps in newer snapshots), then ``on_*`` and ``snapshot`` in any order.
Its contract (D12): for the same state, rows and answers of its context, it always emits the same rows in the same
order. It must not read a clock, a random generator, the network, or the iteration order of a set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clonos_py.model.errors import UnreadableCheckpointError
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import MetricDefinition

if TYPE_CHECKING:
    import random

    import pyarrow as pa

    from clonos_py.model.ids import Attempt, TaskId
    from clonos_py.model.segments import LogSegment


class Output(Protocol):
    """Receives the results of an operator."""

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """Passes rows (any number, of the port's declared schema) to the next operators. They are immutable then."""
        ...


class ServiceGate(Protocol):
    """The gate through which all nondeterminism enters a task (D4), as services see it."""

    def ask(self, kind: str, live: Any) -> Any:
        """While running: the value of ``live()``, logged as an answer of ``kind``. While replaying: the logged value.

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
    """The services of a task for its operators. Valid from ``open`` on; external services only inside ``on_*``."""

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
        """The event time (microseconds) up to which input is complete; MIN_TIME before there is a watermark."""
        ...

    @property
    def frame(self) -> tuple[int, int]:
        """(input channel index, sequence number) of the current frame, or (-1, n) for the n-th other event. For
        idempotency keys (D16) and error messages."""
        ...

    @property
    def numbering(self) -> str:
        """The name of this run's frame numbering: the job's lineage, and how often a change of parallelism has
        restarted frame numbers at 0. The same for all attempts of a task; empty before the task has begun."""
        ...

    @property
    def may_repeat(self) -> bool:
        """Whether a predecessor may have made calls that this process makes, and their answers were lost with it."""
        ...

    @property
    def time(self) -> Clock: ...

    @property
    def random(self) -> random.Random:
        """Seeded through the log once per epoch."""
        ...

    @property
    def gate(self) -> ServiceGate:
        """For services only; user code does not call it."""
        ...

    def service(self, name: str) -> Any:
        """The client of a service (``"http"`` or the name of a user's service), opened inside this task."""
        ...

    def set_timer(self, at: int) -> None:
        """Requests ``on_timer(at)`` once the processing time has reached ``at`` (microseconds). Setting a timer twice
        has no further effect. Timers are not part of the operator's snapshot: ``restore`` must set them again."""
        ...

    def clear_timer(self, at: int) -> None: ...

    def start_call(self, number: int, service: str, question: Any) -> None:
        """Requests ``on_answer(number, ...)`` once the service has answered. The service is called only after the
        replay has ended, and only if the log holds no answer. Like timers, calls are not part of the operator's
        snapshot."""
        ...

    def cancel_call(self, number: int) -> None:
        """Cancels a call: its answer is ignored."""
        ...

    def hold(self, any_: bool, enough: bool) -> None:
        """States how many rows the operator still holds. ``any_``: it holds some, so the task does not end. ``enough``:
        it holds so many that the task takes no further rows."""
        ...

    def count(self, metric: str, amount: int) -> None:
        """Adds to a counter that is shown to the user, such as ``late_rows``. Has no effect on results."""
        ...

    def measure(self, definition: MetricDefinition, amount: float) -> None:
        """Gives a number to a metric of the user's function. Has no effect on results."""
        ...


class Operator:
    """The base class of all operators: without state, passes watermarks on. Subclasses override what they need."""

    ctx: OperatorContext
    out: Output

    @property
    def final(self) -> bool:
        """Whether what it emits at the end of all input is final: rows that come in a later run cannot change it."""
        return False

    @property
    def satisfied(self) -> bool:
        """Whether no further row has an effect: then the sources of these rows may end."""
        return False

    def open(self, ctx: OperatorContext, out: Output) -> None:
        self.ctx, self.out = ctx, out

    def close(self) -> None:
        """Releases the resources that ``open`` acquired. Called at most once, and not after a kill."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        """Processes rows of input ``side`` (0 for one input; 0 left, 1 right for a join). A batch is never split."""
        raise NotImplementedError

    def on_watermark(self, watermark: int) -> int:
        """Event time has advanced to ``watermark`` (microseconds): no row below it will come, except late ones. Emits
        the results that are due.

        Returns the watermark that holds for the rows emitted so far, at most ``watermark``. At the end of all input it
        is called with MAX_TIME, so that windows close.
        """
        return watermark

    def on_timer(self, at: int) -> None:
        """A processing-time timer set by ``ctx.set_timer(at)`` has fired."""

    def on_answer(self, number: int, value: Any, error: str | None) -> None:
        """The call with this number, requested with ``ctx.start_call``, is answered."""

    def released(self) -> int:
        """Called after a timer, an answer or ``on_settled``: returns the watermark that now holds for the rows emitted
        so far. MIN_TIME if ``on_watermark`` holds nothing back."""
        return MIN_TIME

    def on_settled(self, side: int) -> None:
        """Each source of a side that holds no watermark back has ended, or has been idle once. May be called again."""

    def on_end(self) -> None:
        """All inputs have ended: emits the remaining results. Called once, after ``on_watermark(MAX_TIME)``."""

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        """The columns of the tables of its snapshots, for rows of these schemas, by side. It may be called before
        ``open``. A restore gets chunks of these columns, even if those in storage had others that can be taken over."""
        return {}

    def snapshot(self) -> OperatorState:
        """The current state. This is cheap: chunks are referenced, only changes since the last snapshot are built."""
        return OperatorState()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """Replaces the state by ``parts``: one snapshot at an unchanged parallelism, else those of all former instances
        that may hold rows of ``ctx.groups``. Rows of other groups must be filtered out here."""


class Extent(NamedTuple):
    """The log of footprints from the oldest one that still decides, by batch, oldest first (CEC, section 2).

    ``positions``: the number of input events before each batch. ``records``: its footprints, those of closed windows
    included. ``live``: how many of them are the newest of a key or window with state."""

    positions: Sequence[int]
    records: Sequence[int]
    live: Sequence[int]


class PartwiseOperator(Operator):
    """An operator whose state can be saved in parts, each at a position of its own (CEC). A position is the number of
    the task's input events so far.

    After a restore of footprints comes a rebuild, once the process is to be the task: ``begin_rebuild``, then all input
    events and watermarks since the oldest footprint come again, with ``rebuild`` in place of ``on_rows``; what the
    operator emits, counts and sets is dropped. Then the operator is called as after any other restore."""

    @property
    def partwise(self) -> bool:
        """Whether this instance can."""
        return True

    def save_in_parts(self) -> None:
        """Called once, after ``open``: footprints will be asked for."""
        raise NotImplementedError

    def save(self, position: int) -> None:
        """Writes footprints of what was opened or closed since the last call."""
        raise NotImplementedError

    def check(self, position: int, parts: int) -> None:
        """Writes new footprints of so many parts, those with the oldest ones."""
        raise NotImplementedError

    def forget(self) -> None:
        """No footprint counts any more: the next ``save`` writes those of all parts."""
        raise NotImplementedError

    @property
    def extent(self) -> Extent:
        raise NotImplementedError

    def footprints(self) -> OperatorState:
        """The extent, for a snapshot right after ``save``. ``restore`` takes it like any other snapshot. A standby does
        so for each one, so it should leave to ``begin_rebuild`` what takes long."""
        raise NotImplementedError

    def begin_rebuild(self) -> None:
        """Builds the state of the footprints that the last ``restore`` took. Raises CheckpointError if they are
        damaged."""
        raise NotImplementedError

    def rebuild(self, rows: pa.RecordBatch, side: int, position: int) -> None:
        """Processes those of the rows of the event at ``position`` that come behind the footprints of their parts."""
        raise NotImplementedError

    def rebuilt(self) -> None:
        """All input up to the snapshot has come again."""
        raise NotImplementedError


class Committing(Protocol):
    """A part that commits when checkpoints complete: a sink, or a source that reports its progress elsewhere."""

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits all results that a completed checkpoint names, oldest first. Raises ClonosError."""
        ...

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """Receives the snapshots that ``restore`` will get."""
        ...


class Sink(Operator):
    """An operator without output. The defaults fit sinks whose effect needs no commit (memory, print, digest)."""

    def prepare(self, checkpoint: int) -> bytes | None:
        """Called at the barrier, before ``snapshot``: makes durable what was written since the last barrier and names
        it.

        Returns None if there is nothing to commit. The name goes into the manifest.
        """
        return None

    def commit(self, committable: bytes) -> None:
        """Makes visible what ``prepare`` named. Idempotent. May be called in another process and thread than
        ``prepare``, after ``open``. Raises SinkError."""

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits all results that a completed checkpoint names, oldest first. Raises SinkError."""
        for committable in committables:
            self.commit(committable)

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """Receives the snapshots that ``restore`` will get. The committing thread calls it first, since results that
        the checkpoint names may be committed before the task has restored the snapshots."""


class EventTimeAssigner(Operator):
    """An operator that directly follows its task's source and assigns event times to the rows. The task keeps track of
    the event times of each partition, and passes the operator the resulting watermark."""

    column: str
    out_of_order_us: int

    def continue_from(self, highest_us: int) -> None:
        """The next rows are of a partition that had this highest event time before them."""
        raise NotImplementedError

    def take_extent(self) -> tuple[int, int] | None:
        """The earliest and the latest event time of the rows since the last call; None if there were none."""
        raise NotImplementedError

    def set_watermark(self, watermark: int) -> None:
        """Sets the watermark that now holds for the rows emitted so far; ``released`` returns it."""
        raise NotImplementedError


class OutputSegment(NamedTuple):
    """Numbered rows as a causal sink writes them; ``checksum`` is that of the rows."""

    seq: int
    checksum: int
    rows: pa.RecordBatch


class PublishedOutput(NamedTuple):
    """The contents of a causal output: determinants, and by number the checksums of the visible pieces."""

    log: Sequence[LogSegment]
    checksums: Mapping[int, int]


class CausalSink(Sink):
    """A sink whose output holds determinants, so that its rows are visible at once (Clonos, section 5.5; D16).

    Its rows are numbered in pieces, like the frames of a channel whose receiver never fails. Subclasses implement the
    medium. One thread calls ``acquire`` and ``append``; it may differ from the task's.
    """

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self.out.emit(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def warm_up(self) -> None:
        """Called once in every process, also of a standby, before ``acquire`` and by the same thread: opens the
        connections that ``acquire`` needs. It must change nothing in the output. A ClonosError is ignored: ``acquire``
        meets the same problem."""

    def acquire(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        """Takes over the output from all earlier attempts, so that none of them can add to it. Returns what it holds
        since ``checkpoint``, the last complete one. ``shape``: the job's vertices, with their operators and
        parallelism; output that tasks of another shape have written since then could not be repeated. ``lineage``: that
        of the job's checkpoints; a run before ``--fresh`` had another one. Raises SinkError."""
        raise NotImplementedError

    def append(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        """Makes ``log`` durable, then ``pieces`` visible. ``epoch``: the last checkpoint taken; the first log of an
        epoch is complete from its beginning. Raises SinkError."""
        raise NotImplementedError

    def settle(self) -> None:
        """Called before a snapshot: makes durable what is visible. Raises SinkError."""

    def truncate_before(self, checkpoint: int) -> None:
        """``checkpoint`` is complete: drops logs of earlier epochs."""
        raise NotImplementedError

    def prepare(self, checkpoint: int) -> bytes | None:
        return b"%d" % checkpoint

    def commit(self, committable: bytes) -> None:
        if not committable.isdigit():
            raise UnreadableCheckpointError(
                f"the checkpoint names {committable!r} as output of operator {self.ctx.operator!r}: its manifest is "
                "damaged, or the sink had another delivery; restore it from a copy, resume with that delivery, or "
                "start over with --fresh"
            )
        self.truncate_before(int(committable))


class Read(NamedTuple):
    """The result of one poll: ``rows[port]`` (None if the port has no rows) at offsets [start, stop)."""

    partition: int
    start: int
    stop: int
    rows: tuple[pa.RecordBatch | None, ...]
    checksum: int = 0
    """Of the content read, as cheap as the source can make it; compared on replay."""
    events: int = -1
    """The number of input events covered, for throughput; -1: the number of rows."""
    last: bool = False
    """The partition is exhausted and holds no watermark back any more. A reread returns the same, unless a later run
    has more rows. After a ``seek`` to its end the partition is marked once more, by a read without rows, if others go
    on: in a run that resumes it holds the watermark back until then."""
    due_us: int = 0
    """The processing time at which a paced source should have read this; latency counts from there. 0: unpaced."""
    counts: Mapping[str, int] = {}
    """By counter of the source that is shown to the user, such as ``rows_skipped``: the amount to add."""
    note: Any = None
    """For a source whose rows are logged: plain data logged with the rows, which ``passed`` gets on replay."""
    identity: int = 0
    """A number of the object that was read, such as the inode of a file; see ``LastRead``."""

    @property
    def row_count(self) -> int:
        return sum(rows.num_rows for rows in self.rows if rows is not None)

    @property
    def event_count(self) -> int:
        return self.events if self.events >= 0 else self.row_count

    @property
    def size_bytes(self) -> int:
        return sum(rows.nbytes for rows in self.rows if rows is not None)


class LastRead(NamedTuple):
    """The last read of a partition, as it was given. ``identity``: 0 if it is unknown."""

    start: int
    stop: int
    checksum: int
    identity: int


class Wait(NamedTuple):
    """There is nothing to read before ``until`` (microseconds, on the clock of ``poll``)."""

    until: int


class End(NamedTuple):
    """Every partition of this instance is exhausted."""


class Discovered(NamedTuple):
    """Partitions of this instance that are read from now on, each with its first offset; returned by ``poll`` until
    ``discovered`` is called. None: the instance has no partition for now, and holds no event time back."""

    starts: Mapping[int, int]


class Source:
    """Reads partitions. One object per task; partition p belongs to instance p % parallelism.

    Offsets are 64-bit integers that the source defines (rows, bytes, event numbers) and that only grow.
    """

    logs_rows = False
    """Whether the source may return different rows at the same offsets later. Then rows are logged with each read, and
    a replay takes them from the log."""
    grows = False
    """Whether a source with a number of partitions may report further ones with ``Discovered``, whose numbers are not
    below it."""
    consumes = False
    """Whether reading removes rows from their origin: then ``clonos check`` generates rows instead."""

    def passed(self, read: Read) -> None:
        """A replay has taken this read from the log. Called before ``seek``, if the source ``logs_rows``."""

    def wait_for_rows(self) -> bool:
        """For callers that read a source to its end: after a ``Wait``, blocks for a moment until there may be more
        rows. Returns False if the source need not end."""
        return False

    def partitions(self) -> int:
        """The number of partitions at the start, the same for every instance. It is fixed by the first checkpoint. A
        source whose number of partitions can grow returns 0, and reports all of them with ``Discovered``."""
        return 1

    def begins(self, partition: int) -> int:
        """The offset at which a partition of this instance begins. Called after ``open``."""
        return 0

    def open(self, index: int, parallelism: int) -> None: ...

    def close(self) -> None: ...

    def notify(self, wake: Callable[[], None]) -> None:
        """Called before the first poll. A source that detects new rows in a thread of its own calls ``wake``, so that
        it is polled at once. ``wake`` is cheap and may be called by any thread."""

    def recall(self, last: Callable[[int], LastRead | None]) -> None:
        """Called once, after ``open``. ``last`` returns the last read of a partition, which is stored with its
        position: so a source can find out whether what was read is still the same. None: there was none, or it is
        unknown. Between ``seek`` and the first poll it is the read that ended at the position."""

    def snapshot(self) -> Any:
        """State to store beside the positions: plain data; None if there is none."""
        return None

    def restore(self, saved: Any) -> None:
        """Called before ``seek`` with the result of ``snapshot``; at another parallelism once for each former instance.
        Raises SourceError if it belongs to another input."""

    def discovered(self, starts: Mapping[int, int]) -> None:
        """The task has taken these partitions from a poll, now or before a failure."""

    def commit(self, positions: Mapping[int, int]) -> None:
        """A checkpoint with these positions is complete. Called by another thread, and again after a restart, if the
        definition ``commits``. Raises SourceError for errors that will not pass by themselves."""

    def rows_waiting(self) -> int | None:
        """The approximate number of rows that exist and were not read yet; None if it is unknown."""
        return None

    def bytes_kept(self) -> int | None:
        """The bytes that a server keeps for this source since no completed checkpoint covers them, as far as it is
        known; None if it keeps nothing for it."""
        return None

    def seek(self, positions: Mapping[int, int]) -> None:
        """Continues at these offsets, by partition. A partition without an offset starts at its beginning."""
        raise NotImplementedError

    def limit(self, rows: int) -> None:
        """The next polls should return at most this many rows, since the consumer is slow. A source that cannot limit
        its reads may ignore it."""

    def poll(self, now: int) -> Read | Wait | End | Discovered:
        """The next piece, from any partition. Does not block. ``now``: microseconds on the run's steady clock, which
        begins at the time of day and is never set; the time in ``Wait`` is on the same clock."""
        raise NotImplementedError

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """Returns exactly the same piece again; afterwards the partition continues at ``stop``. Raises SourceError."""
        raise NotImplementedError


@dataclass(frozen=True)
class EventTime:
    """How a source's rows carry event time (P6). ``columns[port]`` is the int64 microseconds column, None without.
    ``ahead_us``: how far its watermark may be ahead of the slowest source's; None: any distance."""

    columns: tuple[str | None, ...]
    out_of_order_us: int = 0
    idle_us: int | None = None
    ahead_us: int | None = None
