"""The contract between the link and the task of one process (D8): events, states and limits. Neither imports the other.

Events pass between them through one queue in each direction. Both have the same states, each with its own transition
table (``link/states.py``, ``task/states.py``), and the same limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from clonos_py.channel.frames import Frame
from clonos_py.model.calls import Answered
from clonos_py.model.counters import EventTimesRead, SavedParts
from clonos_py.model.ids import Attempt
from clonos_py.model.purposes import Purpose
from clonos_py.model.retention import Spill
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import UserMetric

ORDER_TABLE = "footprints.order"
"""Table of the operator whose state is saved in parts. By event since the oldest footprint: the input channel, and the
number of frames taken together."""


class TaskState(Enum):
    """The states of a process. A task that never failed passes through the same states, with nothing to replay."""

    STANDBY = "standby"
    CONNECTING = "connecting"
    FETCHING_DETERMINANTS = "fetching determinants"
    REPLAYING = "replaying"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class ChannelLimits:
    """Limits on frames in flight, retained frames and waiting rows in the channels of one process, and how the task
    cuts frames.

    ``window``: frames in flight per channel. ``budget_bytes``: memory for the task's retained frames; beyond it sources
    stop reading. ``reserve``: a share on top of the budget, for frames that must pass before the next barrier; beyond
    it the job stops. ``spill_bytes``: the threshold of the spill policy that has one. ``queue_us``: how long rows
    should wait at most in a channel before a Python function; a barrier waits behind them as long. ``cuts_early``:
    whether pending rows leave before the linger time is over if the task has nothing else to do.
    """

    window: int = 16
    budget_bytes: int = 1 << 30
    reserve: float = 0.5
    policy: Spill = Spill.IN_MEMORY
    spill_bytes: int = 256 << 20
    queue_us: int = 500_000
    cuts_early: bool = False

    @property
    def frames_merged(self) -> int:
        """The most frames that a task takes together. A replay waits until all of them have arrived."""
        return self.window // 2

    @property
    def regenerates(self) -> bool:
        """Whether tasks that can make frames again retain none that was taken. All others spill by threshold."""
        return self.policy is Spill.REGENERATE


class InputProgress(msgspec.Struct, array_like=True):
    """How far an input channel has been read."""

    next_seq: int = 0
    watermark: int = MIN_TIME
    idle: bool = False
    ended: bool = False
    settled: bool = False
    """Whether it has ended, or has been idle."""


class TaskProgress(msgspec.Struct):
    """The part of a snapshot that only a replacement of the same task can use."""

    inputs: list[InputProgress]
    outputs: list[int]
    """By output channel: the sequence number of the next frame after the barrier."""
    round_robin: list[int]
    """By edge of the outputs: the next instance in the round-robin order of a REBALANCE."""
    edge_watermarks: list[int]
    """By edge of the outputs: the last watermark that was sent to its receivers."""
    idle: bool
    log_offset: int
    watermarks: list[int]
    """The watermark of the task's input, then the watermark that each operator holds back to."""
    received: list[int]
    """By operator: the last watermark that it received."""
    timers: list[tuple[int, int]]
    """The processing-time timers, as (time, operator number)."""
    partitions: dict[int, tuple[int, bool]]
    """By source partition: its highest event time, and whether it is idle."""
    other_events: int = 0
    """The number of events so far that were not frames; idempotency keys are made from it (D16)."""
    finished: bool = False
    ended: int = -1
    """The number of operators that have received the end of all input; -1: the input has not ended."""
    counts: dict[str, int] = {}
    """Counters of the operators; rows that are replayed count once."""
    published: list[int] = []
    """By causal sink: the number of its next piece."""
    timers_left_us: list[int] = []
    """By timer: the remaining time."""
    frame_rows: list[int] = []
    """By output channel: the most rows of a frame."""
    protocol: bytes = b""
    """State of the checkpoint protocol."""
    partition_count: int = -1
    """Of a source: how many partitions it had when the task started; -1: it is none."""
    taken: int = 0
    """The number of input events so far, of a task whose state is saved in parts."""
    rebuild_taken: int = 0
    """That number at the oldest footprint, to which a restore goes back."""
    sunk: list[int] = []
    """By sink of a job that records: a running checksum of all rows that it was given (``columns/chained.py``)."""
    rebuild: list[InputProgress] = []
    """The inputs there; empty: a restore does not go back."""
    run: str = ""
    """The run that last opened the source, see ``SourceReopened``."""
    metrics: dict[str, UserMetric] = {}
    """By ``operator.name``: metrics of users' functions; rows that are replayed count once."""

    @property
    def first_inputs(self) -> list[InputProgress]:
        """The inputs with which a restore begins."""
        return self.rebuild or self.inputs

    @property
    def covered(self) -> list[int]:
        """By input channel: the first frame that a restore needs."""
        return [channel.next_seq for channel in self.first_inputs]

    @property
    def begun(self) -> TaskProgress:
        """The progress with which a restore begins."""
        return msgspec.structs.replace(self, inputs=self.first_inputs, taken=self.rebuild_taken, rebuild=[])


# ---- link to task


class RestoreState(msgspec.Struct, frozen=True):
    """Replace all state. ``operators`` holds, by operator, one snapshot, or several at a new parallelism. ``ahead``:
    the process is a standby, and no failed task waits for it. ``closed``: see ``Restore``."""

    checkpoint: int
    operators: Mapping[str, Sequence[OperatorState]]
    progress: TaskProgress | None
    ahead: bool = False
    closed: Collection[str] = ()
    feed_point: int = 0
    """The number of the feed point that this is; 0: it is a checkpoint."""
    aborted: Sequence[int] = ()
    """Of a feed point: void checkpoints whose barriers may still arrive."""
    counts: Mapping[str, int] = {}
    """Without ``progress``: the counters with which operators go on."""
    metrics: Mapping[str, UserMetric] = {}
    """Without ``progress``: the metrics with which users' functions go on."""


class FeedPosition(msgspec.Struct, frozen=True, array_like=True):
    """The position of a feed point in the task's log: the epoch, the offset at which it began, the point's offset."""

    epoch: int
    epoch_start: int
    offset: int


class Begin(msgspec.Struct, frozen=True):
    """Become the task: replay ``log``, then run. ``aborted`` checkpoints are void; those that the log does not contain
    are processed as control requests after it. ``numbering``: see OperatorContext."""

    attempt: Attempt
    log: Sequence[LogSegment]
    aborted: Sequence[int]
    numbering: str = ""
    at_landmark: bool = True
    """Whether to start at the last landmark in the log, if there is one. The frames before it need not be retained
    then."""
    before: tuple[int, int] | None = None
    """(output, frame): start in the middle of the log, at the point where that frame is still to be cut."""
    fed: FeedPosition | None = None
    """The state is that of a feed point: start there, in the middle of the log."""
    run: str = ""
    """The name of the run, the same for all of its coordinators; empty: no event follows the log."""


class Deliver(msgspec.Struct, frozen=True):
    """The next frame of an input channel."""

    input: int
    frame: Frame


class Renumber(msgspec.Struct, frozen=True):
    """The sender of an input has restarted without determinants and renumbers its frames. Frames of the old numbering
    that were not taken are void. ``next_seq`` is -1 until it is received. ``ended``: the channel had already ended at
    the sender's restart point."""

    input: int
    next_seq: int
    ended: bool = False


class TriggerRequest(msgspec.Struct, frozen=True):
    """Take a snapshot for this checkpoint, and then stand still if the job ends with it."""

    checkpoint: int
    purpose: Purpose = Purpose.PERIODIC


class GoOn(msgspec.Struct, frozen=True):
    """Do not stand still any more: a new coordinator has not been told that the job is to stop."""


class AbortRequest(msgspec.Struct, frozen=True):
    checkpoint: int


class ProbeRequest(msgspec.Struct, frozen=True):
    """Report the progress of the task's loop, in ``LoopCounts`` with this number."""

    number: int


class LoopEndRequest(msgspec.Struct, frozen=True):
    """The loop of which the task is a head holds no rows: it ends as if its feedback input had ended."""


class SourceLimit(msgspec.Struct, frozen=True):
    """Read only while the source's watermark is at most ``limit_us``, and report it, in ``WatermarkReached``."""

    limit_us: int


class SourceEndRequest(msgspec.Struct, frozen=True):
    """Further rows of the source have no effect: it ends as if all had been read."""


class SourceArrival(msgspec.Struct, frozen=True):
    """The task's source has new data: poll it at once."""


class MayProduce(msgspec.Struct, frozen=True):
    """Back-pressure: False when receivers have enough. A replaying task is not held back."""

    allowed: bool


class FrameRowsRequested(msgspec.Struct, frozen=True):
    """How many rows a frame of an output should have: as many as its receiver takes in one step."""

    output: int
    rows: int


class Regenerate(msgspec.Struct, frozen=True):
    """Make the frames [start, stop) of ``output`` again from ``log``, the task's own log since the last completed
    checkpoint; for now only those below ``below``. This replaces the request of any earlier ``run``."""

    output: int
    run: int
    start: int
    stop: int
    below: int
    log: Sequence[LogSegment]


class RegenerateBelow(msgspec.Struct, frozen=True):
    """There is memory for regenerated frames of this output with numbers below ``below``."""

    output: int
    below: int


class FeedRequested(msgspec.Struct, frozen=True):
    """Take the next feed point when it is due: the standbys have the last one."""


ToTask = (
    RestoreState
    | Begin
    | Deliver
    | Renumber
    | TriggerRequest
    | GoOn
    | AbortRequest
    | ProbeRequest
    | LoopEndRequest
    | SourceLimit
    | SourceEndRequest
    | SourceArrival
    | MayProduce
    | FrameRowsRequested
    | Answered
    | Regenerate
    | RegenerateBelow
    | FeedRequested
)


# ---- task to link


class Produced(msgspec.Struct, frozen=True):
    """Determinants and the frames that depend on them. Both are in one event, determinants first (Clonos, 4.3)."""

    log: LogSegment | None
    frames: Sequence[tuple[int, Frame]]
    """(output index, frame), in the order cut."""
    published: Sequence[tuple[int, Frame]] = ()
    """(number of the causal sink, rows as a frame), in the order cut."""


class FramesTaken(msgspec.Struct, frozen=True):
    """The task has taken all frames of ``input`` below ``next_seq``. ``restarts``: how often its numbering had
    restarted. ``rows_requested``: how many rows it processes in the longest time that rows should wait in a channel.
    ``rows_at_once``: how many it takes in one step. Both are 0 if they do not matter or are not known yet."""

    input: int
    next_seq: int
    restarts: int = 0
    rows_requested: int = 0
    rows_at_once: int = 0


class SnapshotTimes(msgspec.Struct, frozen=True):
    """The work that a snapshot has cost, which the driver measures; see ``Snapshotted``."""

    sync_ms: float = 0.0
    blocked_ms: float = 0.0
    busy_ms: float = 0.0


class SnapshotTaken(msgspec.Struct, frozen=True):
    """A snapshot was taken. ``persist`` is False if a replay passes a barrier that its predecessor had passed."""

    snapshot: TaskSnapshot
    progress: TaskProgress
    persist: bool
    times: SnapshotTimes = SnapshotTimes()


class StateChanged(msgspec.Struct, frozen=True):
    """The task has changed its state."""

    state: TaskState
    rows_replayed: int = 0


class Observed(msgspec.Struct, frozen=True):
    """Metrics, without effect on the computation: rows and events of a step, and the latency marker that reached a sink
    with frame ``seq`` of ``input`` (-1: from the task's own source)."""

    events: int = 0
    rows_out: int = 0
    marker_us: int = 0
    input: int = -1
    seq: int = -1
    watermark: int = MIN_TIME
    """The watermark of the task's input when ``events`` came."""
    replayed: bool = False
    """Whether a predecessor had processed these events, too."""
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The current values of all counters of the task's operators. Empty, with ``metrics``, if nothing has changed."""
    metrics: Mapping[str, UserMetric] = msgspec.field(default_factory=dict)
    """The current values of all metrics of users' functions."""
    rows_waiting: int | None = None
    """Of a source: see ``Source.rows_waiting``."""
    bytes_kept: int | None = None
    """Of a source: see ``Source.bytes_kept``."""
    event_times: Sequence[EventTimesRead] = ()
    """Of a source: the event times that it has read, or that operators behind it have assigned."""
    saved_parts: SavedParts | None = None
    """What the last snapshot has saved in parts."""
    standby_lag_us: int | None = None
    """How far the standbys were behind when they loaded the last feed point."""


class LoopCounts(msgspec.Struct, frozen=True):
    """The answer to probe ``number``. ``passive``: the streams that enter the loop at this task have ended, and the
    task is processing no rows. ``epoch``: the task's current epoch. ``cut`` and ``taken``: by output and by input
    channel, the number of the next frame."""

    number: int
    passive: bool
    epoch: int
    cut: Sequence[int]
    taken: Sequence[int]


class WatermarkReached(msgspec.Struct, frozen=True):
    """The answer to ``SourceLimit``: the source's watermark; MAX_TIME if it holds none back."""

    reached_us: int


class NoFurtherEffect(msgspec.Struct, frozen=True):
    """No further row has an effect in this task, which is in ``epoch``."""

    epoch: int


class Resumed(msgspec.Struct, frozen=True):
    """The task continues from the last landmark in its log: its outputs are at ``next_seqs``. Frames that its
    predecessor cut before are made again only on request."""

    next_seqs: Sequence[int]


class Regenerated(msgspec.Struct, frozen=True):
    """Frames that ``run`` has made again, in order."""

    output: int
    run: int
    frames: Sequence[Frame]


class FeedPointTaken(msgspec.Struct, frozen=True):
    """The task's state at a feed point, for its standbys. Of a sink it is the state at the last barrier, with the rows
    since then (``task/sink_rows.py``)."""

    operators: Mapping[str, OperatorState]
    progress: TaskProgress
    position: FeedPosition
    aborted: Sequence[int]
    """Void checkpoints whose barriers may still arrive."""


class FeedPointLoaded(msgspec.Struct, frozen=True):
    """The task of a standby has the state of this feed point."""

    number: int


FromTask = (
    Produced
    | FramesTaken
    | SnapshotTaken
    | StateChanged
    | Observed
    | LoopCounts
    | WatermarkReached
    | NoFurtherEffect
    | Resumed
    | Regenerated
    | FeedPointTaken
    | FeedPointLoaded
)
