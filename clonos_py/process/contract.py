"""What the link and the task of one process agree on (D8). Neither imports the other.

Events pass between them through one queue in each direction. Both have the same states, each with a table of its own
(``link/states.py``, ``task/states.py``), and the same limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from clonos_py.channel.frames import Frame
from clonos_py.model.calls import Answered
from clonos_py.model.counters import EventTimesRead
from clonos_py.model.ids import Attempt
from clonos_py.model.retention import Spill
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME


class TaskState(Enum):
    """Where a process stands. A task that never failed takes the same way, with nothing to replay."""

    STANDBY = "standby"
    CONNECTING = "connecting"
    FETCHING_DETERMINANTS = "fetching determinants"
    REPLAYING = "replaying"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class ChannelLimits:
    """What may be on its way, retained and waiting in the channels of one process.

    ``window``: frames on their way per channel; ``budget_bytes``: retained memory of the task, beyond which sources
    stop to read. The reserve, a share on top, admits what must pass for the next barrier; then the job stops.
    ``spill_bytes`` is the threshold of the policy that has one. ``queue_us``: before a Python function, rows should
    wait no longer than this in a channel; so long does a barrier wait behind them, too."""

    window: int = 16
    budget_bytes: int = 1 << 30
    reserve: float = 0.5
    policy: Spill = Spill.IN_MEMORY
    spill_bytes: int = 256 << 20
    queue_us: int = 500_000

    @property
    def frames_merged(self) -> int:
        """The most frames that a task takes together. A replay waits until all of them have come."""
        return self.window // 2


class InputProgress(msgspec.Struct, array_like=True):
    """How far an input channel was taken."""

    next_seq: int = 0
    watermark: int = MIN_TIME
    idle: bool = False
    ended: bool = False


class TaskProgress(msgspec.Struct):
    """The part of a snapshot that only the replacement of the same task can use."""

    inputs: list[InputProgress]
    outputs: list[int]
    """Next sequence number by output channel, after the barrier."""
    round_robin: list[int]
    """By edge of the outputs: which instance a REBALANCE is at."""
    edge_watermarks: list[int]
    """By edge of the outputs: the watermark that its receivers have heard."""
    idle: bool
    log_offset: int
    watermarks: list[int]
    """Of the task's input, then what each operator holds to."""
    received: list[int]
    """By operator: the watermark it was last told."""
    timers: list[tuple[int, int]]
    """(time, operator number) of the processing-time timers."""
    partitions: dict[int, tuple[int, bool, bool]]
    """By source partition: its highest event time, whether it is idle, whether it has given its last row."""
    other_events: int = 0
    """Events so far that were no frames; they number what idempotency keys are made of (D16)."""
    finished: bool = False
    ended: int = -1
    """Operators that know that all input has ended; -1: it has not."""
    counts: dict[str, int] = {}
    """Counters of the operators: what is replayed counts once."""
    published: list[int] = []
    """By causal sink: the number of its next piece."""
    timers_left_us: list[int] = []
    """By timer: how much time was left."""
    frame_rows: list[int] = []
    """By output channel: the most rows of a frame."""
    protocol: bytes = b""
    """What the checkpoint protocol keeps."""


# ---- link to task


@dataclass(frozen=True, slots=True)
class TakeState:
    """Replace all state. ``operators`` holds, by operator, one snapshot, or several at a new parallelism. ``ahead``:
    the process stands by, no failed task waits for it."""

    checkpoint: int
    operators: Mapping[str, Sequence[OperatorState]]
    progress: TaskProgress | None
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Be the task: replay ``log``, then run. ``aborted`` checkpoints are void; those not met in the log are taken
    as control calls after it. ``numbering``: see OperatorContext."""

    attempt: Attempt
    log: Sequence[LogSegment]
    aborted: Sequence[int]
    numbering: str = ""
    before: tuple[int, int] | None = None
    """(output, frame): begin in the middle of the log, where that frame is still to be cut."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """The next frame of an input channel."""

    input: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Renumber:
    """The sender of an input has restarted, without determinants, and renumbers its frames: those that were not
    taken are void. ``next_seq`` is -1 until it is known. ``ended``: the channel had ended already where it started."""

    input: int
    next_seq: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TriggerCall:
    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortCall:
    checkpoint: int


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """Say how far your loop has come, in ``LoopCounts`` of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LoopEndCall:
    """No rows are left in the loop of which the task is a head: it ends as if the feedback had."""


@dataclass(frozen=True, slots=True)
class SourceArrival:
    """The task's source has something new: it is polled at once."""


@dataclass(frozen=True, slots=True)
class MayProduce:
    """Back-pressure: False when receivers have enough. A replaying task is not held back."""

    allowed: bool


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """The receiver of an output takes so many rows of it in the time that rows should wait at most."""

    output: int
    rows: int


@dataclass(frozen=True, slots=True)
class Regenerate:
    """Make the frames [start, stop) of ``output`` again from ``log``, the task's own since the last completed
    checkpoint; for now only those below ``below``. What an earlier ``run`` was to make is not wanted any more."""

    output: int
    run: int
    start: int
    stop: int
    below: int
    log: Sequence[LogSegment]


@dataclass(frozen=True, slots=True)
class RegenerateBelow:
    """There is room for frames of this output made again, up to this number."""

    output: int
    below: int


ToTask = (
    TakeState
    | Begin
    | Deliver
    | Renumber
    | TriggerCall
    | AbortCall
    | ProbeCall
    | LoopEndCall
    | SourceArrival
    | MayProduce
    | RowsWanted
    | Answered
    | Regenerate
    | RegenerateBelow
)


# ---- task to link


@dataclass(frozen=True, slots=True)
class Produced:
    """Determinants, then the frames that depend on them. Determinants come first in the same event (Clonos, 4.3)."""

    log: LogSegment | None
    frames: Sequence[tuple[int, Frame]]
    """(output index, frame), in the order cut."""
    published: Sequence[tuple[int, Frame]] = ()
    """(number of the causal sink, rows as a frame), likewise."""


@dataclass(frozen=True, slots=True)
class Took:
    """The task has taken all frames of ``input`` below ``next_seq``; it had restarted ``restarts`` times.
    ``rows_wanted``: see RowsWanted; 0 where it does not matter, or is not known yet."""

    input: int
    next_seq: int
    restarts: int = 0
    rows_wanted: int = 0


@dataclass(frozen=True, slots=True)
class Snapped:
    """A snapshot was taken. ``persist`` is False when a replay passes a barrier that its predecessor passed."""

    snapshot: TaskSnapshot
    progress: TaskProgress
    persist: bool


@dataclass(frozen=True, slots=True)
class Entered:
    """The task's state has changed."""

    state: TaskState
    rows_replayed: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """For people, without effect: rows and events handled in a step, and the latency marker that reached a sink, with
    frame ``seq`` of ``input`` (-1: from the task's own source)."""

    events: int = 0
    rows_out: int = 0
    marker_us: int = 0
    input: int = -1
    seq: int = -1
    watermark: int = MIN_TIME
    """That of the task's input when ``events`` came."""
    replayed: bool = False
    """Whether a predecessor had handled them, too."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """All counters of the task's operators, as they are now; empty if none has changed."""
    rows_waiting: int | None = None
    """Of a source: see ``Source.rows_waiting``."""
    event_times: Sequence[EventTimesRead] = ()
    """Of a source: which event times it has read, or operators behind it have assigned."""


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """The answer to probe ``number``. ``passive``: the streams that enter the loop at this task have ended, and it has
    no rows in work. ``epoch``: the one that it is in. ``cut`` and ``taken``: by output and by input channel, the number
    of the next frame."""

    number: int
    passive: bool
    epoch: int
    cut: Sequence[int]
    taken: Sequence[int]


@dataclass(frozen=True, slots=True)
class WentOn:
    """The task goes on where the log has its last landmark: its outputs are at ``next_seqs``, and what its predecessor
    cut before is made again only where it is asked for."""

    next_seqs: Sequence[int]


@dataclass(frozen=True, slots=True)
class Regenerated:
    """Frames that ``run`` was to make again, in their order."""

    output: int
    run: int
    frames: Sequence[Frame]


FromTask = Produced | Took | Snapped | Entered | Observed | LoopCounts | WentOn | Regenerated
