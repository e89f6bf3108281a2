"""The state that a process starts from: that of a checkpoint, from storage, or that of a later feed point (D7, E17).

    nothing --a checkpoint is named--> requested --Loaded--> loaded
    requested --LoadFailed--> nothing; requested again, if the process is promoted and storage did not answer
    any --a feed point was passed to the task--> fed --promoted, and the point is of use--> given

The channels get the positions of this state, and outputs the frames that receivers may still request. Everything else
that a start means is up to the link, which reads ``fed``, ``logs`` and ``requested``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from clonos_py.channel.frames import FrameCodec
from clonos_py.channel.retained import RetainedFrame, frame_of
from clonos_py.link import instructions as io
from clonos_py.link.following import FeedState, Following
from clonos_py.link.receiving import InputChannel
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CheckpointError, StorageUnavailableError, UnreadableCheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import LoadDelayed, NotPrepared, Prepared, Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRecord, FrameRun
from clonos_py.process.contract import FeedPointLoaded, FeedPosition, RestoreState, TaskProgress


class Restoring:
    """The state that is requested and the state that the task has. Without a checkpoint a process starts empty."""

    def __init__(
        self,
        process: int,
        task: TaskId,
        inputs: Sequence[InputChannel],
        outputs: Sequence[OutputChannel],
        frames: RestoredFrames,
        following: Following,
    ) -> None:
        self._process, self._task, self._inputs, self._outputs = process, task, inputs, outputs
        self._frames, self._following = frames, following
        self._loaded: int | None = 0
        """The checkpoint whose state the task has; None if it has that of a feed point."""
        self._prepared_by_feed: int | None = None
        """A checkpoint of which the feed has yet to bring the state."""
        self._closed: Collection[str] = ()
        """See ``Restore``: that of the last one received."""
        self.requested: Restore | None = None
        self._delayed = False
        """Whether it was reported that storage does not answer."""
        self.fed: FeedState | None = None
        """The feed point at which the task starts. Its restart point is ``requested`` nevertheless."""
        self.logs: Sequence[LogSegment] = ()
        """The determinants that the loaded state depends on."""
        self.restart_point: TaskProgress | None = None
        """The task's progress at the last checkpoint that is known to be complete."""

    @property
    def ready(self) -> bool:
        """Whether the task has the requested state, or a newer one from the feed."""
        return self.requested is not None and (self.fed is not None or self._loaded == self.requested.checkpoint)

    def is_requested(self, restore: Restore) -> bool:
        """Whether this state is (still) requested."""
        return self.requested is not None and self.requested.checkpoint == restore.checkpoint

    def is_awaited(self, restore: Restore) -> bool:
        """Whether this state is (still) requested from storage."""
        return self.is_requested(restore) and self.fed is None and self._loaded != restore.checkpoint

    def _request(self, restore: Restore, ahead: bool) -> list[io.Instruction]:
        """Requests state, unless the same state is already being loaded: loading it twice would undo later changes.
        ``ahead``: no failed task waits for it."""
        on_its_way = self.is_requested(restore)
        self.requested = restore
        return [] if on_its_way else [io.Load(restore, ahead)]

    # ---- a standby

    def prepare(self, restore: Restore) -> list[io.Instruction]:
        """A standby that is fed loads nothing: it has the state of the checkpoint, or will have it soon. Nor does one
        that has this state, and was to load another one meanwhile."""
        self._closed = restore.closed
        if self._following.point is not None:
            self._prepared_by_feed = restore.checkpoint
            return self._report_prepared()
        if self._loaded != restore.checkpoint or self.is_requested(restore):
            return self._request(restore, ahead=True)
        self.requested = restore
        return [io.SendToCoordinator(Prepared(self._process, restore.checkpoint))]

    def feed_received(self, event: io.FeedReceived) -> list[io.Instruction]:
        """A feed point replaces the state that was loaded, and what is being loaded is not needed."""
        point = self._following.received(event)
        if point is None:
            return self._following.acknowledge()
        self.requested, self._loaded, self.logs = None, None, ()
        return [io.SendToTask(msgspec.structs.replace(point, closed=self._closed))]

    def feed_point_loaded(self, event: FeedPointLoaded) -> list[io.Instruction]:
        return [*self._following.acknowledge(event.number), *self._report_prepared()]

    def _report_prepared(self) -> list[io.Instruction]:
        checkpoint, point = self._prepared_by_feed, self._following.point
        if checkpoint is None or point is None or point.position.epoch < checkpoint:
            return []
        self._prepared_by_feed = None
        return [io.SendToCoordinator(Prepared(self._process, checkpoint))]

    def loaded_ahead(self, event: io.Loaded) -> list[io.Instruction]:
        """A standby has the state of a checkpoint."""
        prepared = Prepared(self._process, event.restore.checkpoint)
        return [self._restored(event, ahead=True), io.SendToCoordinator(prepared)]

    def not_loaded_ahead(self, event: io.LoadFailed) -> list[io.Instruction]:
        """A slow standby may find its checkpoint deleted. It reports this, and waits for the next or for promotion."""
        self.requested = None
        problem = str(event.problem)
        return [io.SendToCoordinator(NotPrepared(self._process, event.restore.checkpoint, problem))]

    # ---- a process that is promoted

    def promote(self, attempt: Attempt, restore: Restore) -> list[io.Instruction]:
        """The process starts as ``attempt``: from the last feed point if that is of use, else from ``restore``, which
        is requested if it is not loaded."""
        left = self._following.leave()
        fed = self._following.usable(attempt, restore.checkpoint)
        if not self._following.precedes(attempt):
            self._following.forget()
        if fed is not None:
            self._start_at(fed, restore)
        elif self._loaded != restore.checkpoint:
            return left + self._request(restore, ahead=False)
        self.requested = restore
        return left

    def loaded(self, event: io.Loaded) -> list[io.Instruction]:
        """The state that the process waits for has arrived."""
        return [self._restored(event, ahead=False)]

    def not_loaded(self, event: io.LoadFailed) -> list[io.Instruction]:
        """Requests the state again if storage did not answer: it tries for a while itself before it says so. Raises
        CheckpointError if the state cannot be read."""
        if not isinstance(event.problem, StorageUnavailableError):
            raise event.problem
        report = [] if self._delayed else [io.SendToCoordinator(LoadDelayed(self._process, str(event.problem)))]
        self._delayed = True
        return [*report, io.Load(event.restore, ahead=False)]

    def begin(self) -> FeedPosition | None:
        """The task begins, and no other state will be loaded. Returns the feed point at which it starts, if any."""
        position = self.fed.position if self.fed is not None else None
        self.fed = self._following.point = None
        self._frames.begun()
        return position

    # ---- channels

    def _start_at(self, fed: FeedState, restore: Restore) -> None:
        """The channels begin at a feed point. The restart point of the task remains ``restore``."""
        self.fed = fed
        progress = self.restart_point = self._progress_of(restore)
        for channel in self._inputs:
            channel.start_from(fed.progress.inputs[channel.index].next_seq)
            channel.cover(progress.covered[channel.index] if progress else 0)
        for output in self._outputs:
            output.restore(fed.progress.outputs[output.index], fed.frames[output.index])

    def _restored(self, event: io.Loaded, ahead: bool) -> io.Instruction:
        """The channels begin at the restart point. Raises CheckpointError if the stored frames in flight do not fit
        them."""
        restore = event.restore
        progress = self._progress_of(restore)
        self._loaded, self.logs, self.restart_point = restore.checkpoint, event.logs, progress
        for channel in self._inputs:
            channel.start_from(progress.covered[channel.index] if progress else 0)
        for output in self._outputs:
            next_seq = progress.outputs[output.index] if progress else 0
            output.restore(next_seq, self._frames.of(output, next_seq, event))
        state = RestoreState(
            restore.checkpoint, event.operators, progress, ahead, restore.closed, counts=restore.counts,
            metrics=restore.metrics,
        )  # fmt: skip
        return io.SendToTask(state)

    def _progress_of(self, restore: Restore) -> TaskProgress | None:
        """The task's progress in the restart point; None at another parallelism. Raises CheckpointError."""
        if restore.progress is None:
            return None
        try:
            return msgspec.msgpack.decode(restore.progress, type=TaskProgress)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise CheckpointError(
                f"checkpoint {restore.checkpoint}: the progress of {self._task} cannot be read: {problem}; resume "
                "from an earlier checkpoint, or start over with --fresh"
            ) from problem


class RestoredFrames:
    """The frames loaded with a restart point, checked against the positions of the outputs. They are the beginning of
    the in-flight logs that had retained them (channel state, E3)."""

    def __init__(self, plan: PhysicalPlan, codec: FrameCodec, check: bool) -> None:
        """``check``: whether frames carry checksums."""
        self._plan, self._codec, self._check = plan, codec, check
        self._known: dict[int, dict[int, tuple[FrameRecord, RetainedFrame]]] = {}
        """By output and sequence number: the frames of the last restart point. If the next one has the same record, the
        frame is the same and is reused."""

    def begun(self) -> None:
        """The task has begun: no further restart point will be loaded."""
        self._known = {}

    def of(self, output: OutputChannel, next_seq: int, loaded: io.Loaded) -> list[RetainedFrame]:
        """The frames of ``output`` below ``next_seq`` that its receiver's restart point does not cover. Raises
        CheckpointError if they are not contiguous up to there, or do not belong to this edge."""
        checkpoint = loaded.restore.checkpoint
        runs = loaded.frames.get(output.index, ())
        seqs = [record.seq for run in runs for record in run.records]
        if seqs != list(range(next_seq - len(seqs), next_seq)):
            raise UnreadableCheckpointError(
                f"checkpoint {checkpoint}: frames {seqs} of {output.channel} are stored, those before {next_seq} "
                "belong there; resume from an earlier checkpoint, or start over with --fresh"
            )
        known = self._known[output.index] = dict(self._entries(output, runs, checkpoint))
        return [_copy(entry) for _, entry in known.values()]

    def _entries(
        self, output: OutputChannel, runs: Iterable[FrameRun], checkpoint: int
    ) -> Iterator[tuple[int, tuple[FrameRecord, RetainedFrame]]]:
        known, schema = self._known.get(output.index, {}), self._plan.edges[output.channel.edge].schema
        for run in runs:
            if not run.schema.equals(schema):
                raise CheckpointError(
                    f"checkpoint {checkpoint}: frame {run.start} of {output.channel} was in flight with other columns "
                    "than the job has now; resume with the former code, or start over with --fresh"
                )
            for record, message in zip(run.records, run.bodies, strict=True):
                before = known.get(record.seq)
                if before is None or before[0] is not record:
                    before = record, self._entry(output, record, message, schema, checkpoint)
                yield record.seq, before

    def _entry(
        self, output: OutputChannel, record: FrameRecord, message: pa.Buffer | None, schema: pa.Schema, checkpoint: int
    ) -> RetainedFrame:
        try:
            body = self._codec.body(message, schema) if message is not None else None
            frame = frame_of(record)
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise UnreadableCheckpointError(
                f"checkpoint {checkpoint}: frame {record.seq} of {output.channel} cannot be read: {problem}; resume "
                "from an earlier checkpoint, or start over with --fresh"
            ) from problem
        return output.entry(frame, record.rows, body, self._codec, self._check)


def _copy(e: RetainedFrame) -> RetainedFrame:
    """A fresh copy, since an in-flight log changes the entries that it retains."""
    return RetainedFrame(e.frame, e.row_count, e.body, e.size_bytes, e.checksum)
