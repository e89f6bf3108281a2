"""Takes and restores snapshots of a task's whole state (D7, D15)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from clonos_py.causal.determinants import Landmark
from clonos_py.causal.log import LogWriter
from clonos_py.channel.frames import FrameKind
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import FeedPointTaken, FeedPosition, Produced, RestoreState, SnapshotTaken, TaskProgress
from clonos_py.task.chain import Chain
from clonos_py.task.checkpointing import TaskCheckpointing
from clonos_py.task.context import TaskContext
from clonos_py.task.inputs import Inputs
from clonos_py.task.outputs import Outputs
from clonos_py.task.reader import Reader
from clonos_py.task.stored_partitions import StoredPartition, state_of


class LandmarkState(msgspec.Struct, frozen=True, array_like=True):
    """The whole state of a task whose operators keep none."""

    partitions: dict[int, StoredPartition]
    """Those of the source."""
    progress: TaskProgress
    source: dict[str, Any]
    """What else the source stores. A replay need not repeat this."""

    @property
    def positions(self) -> dict[int, int]:
        """By partition: the next position."""
        return {number: partition.position for number, partition in self.partitions.items()}


_landmark_states = msgspec.msgpack.Decoder(LandmarkState)


class Snapshotting:
    """Collects the state of all parts of a task, and restores it. A snapshot is taken with no pending output rows."""

    def __init__(
        self,
        shared: TaskContext,
        writer: LogWriter,
        inputs: Inputs,
        chain: Chain,
        outputs: Outputs,
        reader: Reader | None,
        checkpointing: TaskCheckpointing,
        barriers: bool,
    ) -> None:
        """``barriers``: see ``ProtocolProperties``."""
        self._shared, self._writer = shared, writer
        self._inputs, self._chain, self._outputs, self._reader = inputs, chain, outputs, reader
        self._checkpointing, self._barriers = checkpointing, barriers

    def restore(self, item: RestoreState) -> None:
        """Replaces all state with that right after the snapshot."""
        progress = item.progress
        self._shared.timers.clear()
        self._shared.open_epoch()
        counted = progress or item
        self._shared.counts, self._shared.metrics = dict(counted.counts), dict(counted.metrics)
        self._shared.counted = bool(counted.counts or counted.metrics)
        self._outputs.restore(item.checkpoint, progress)
        self._inputs.restore(progress.first_inputs if progress else None)
        self._checkpointing.restore(progress.protocol if progress else b"")
        self._checkpointing.triggers.aborted = set(item.aborted)
        offset = progress.log_offset if progress else 0
        self._writer.resume(item.checkpoint, offset, offset)
        self._chain.restore(item.operators, progress, item.closed)
        if progress:
            self._shared.timers.restore(progress.timers, progress.timers_left_us)
        if self._reader:
            self._reader.restore(item.operators.get(self._reader.name, ()), progress.partitions if progress else None)
            self._reader.run = progress.run if progress else "" if item.operators else None
            self._reader.ended = progress.ended >= 0 if progress else False

    def take(
        self, checkpoint: int, forced: bool, last: bool, other_events: int, ended: bool, persist: bool, now_us: int
    ) -> tuple[Produced, SnapshotTaken]:
        """Takes a snapshot. In the old epoch: flushes pending rows, collects state, sends barriers. Then begins the new
        epoch, with a new seed. ``last``: the job is to end with this checkpoint."""
        self._outputs.flush()
        committables = {name: [named] for name, named in self._chain.prepare(checkpoint).items()}
        operators = self._chain.snapshot(self._in_parts(last or ended, persist, now_us))
        if self._reader:
            operators[self._reader.name] = self._reader.snapshot()
            if self._reader.commits:
                committables[self._reader.name] = [self._reader.prepared()]
        if self._barriers:
            self._outputs.close_with(FrameKind.LAST_BARRIER if last else FrameKind.BARRIER, checkpoint)
        rest = self._writer.open_epoch(checkpoint)
        produced = self._outputs.take(rest)
        self._outputs.epoch = checkpoint
        self._shared.open_epoch()
        self._checkpointing.taken(checkpoint)
        progress = self._stored_progress(other_events, ended, self._writer.offset)
        encoded = msgspec.msgpack.encode(progress)
        snapshot = TaskSnapshot(self._shared.task, checkpoint, operators, encoded, committables, forced=forced)
        return produced, SnapshotTaken(snapshot, progress, persist)

    def _in_parts(self, whole: bool, persist: bool, now_us: int) -> Callable[[], OperatorState] | None:
        """How the state of the operator is taken that can save it in parts. In a replay nothing is saved. Only the
        whole state fits another parallelism, and an operator that has ended."""
        partwise = self._chain.partwise
        if partwise is None:
            return None
        if not persist:
            return OperatorState
        return partwise.save_whole if whole else partial(partwise.save, self._inputs.progress, now_us)

    def feed_point(self, other_events: int, ended: bool) -> tuple[Produced, FeedPointTaken]:
        """Cuts pending rows and collects the state for standbys. Then the next query of the time or of a random number
        gets a new answer."""
        self._outputs.flush()
        operators = self._chain.fed()
        if self._reader:
            operators[self._reader.name] = self._reader.snapshot()
        produced = self.cut()
        self._shared.open_epoch()
        offset = self._writer.offset
        position = FeedPosition(self._writer.epoch, self._writer.epoch_start, offset)
        aborted = sorted(self._checkpointing.triggers.aborted)
        progress = self._stored_progress(other_events, ended, offset)
        progress = msgspec.structs.replace(progress, rebuild_taken=progress.taken, rebuild=[])
        return produced, FeedPointTaken(operators, progress, position, aborted)

    def cut(self) -> Produced:
        """What was cut, with the determinants so far. A replay can begin at the next determinant."""
        produced = self._outputs.take(self._writer.cut())
        self._writer.allow_replay_from_here()
        return produced

    def landmark(self, other_events: int, ended: bool) -> Landmark:
        """Cuts pending rows and returns a landmark. If operators keep no state, progress is the task's whole state."""
        assert self._reader is not None
        self._outputs.flush()
        progress = self._stored_progress(other_events, ended, log_offset=0)
        state = LandmarkState(self._reader.stored_partitions, progress, self._reader.further_state)
        return Landmark(self._writer.epoch, self._writer.epoch_start, msgspec.msgpack.encode(state))

    def state_at(self, landmark: Landmark) -> LandmarkState:
        return _landmark_states.decode(landmark.state)

    def continue_run_of(self, landmark: Landmark) -> None:
        """The source goes on in the run of the job in which this landmark was logged."""
        assert self._reader is not None
        self._reader.run = self.state_at(landmark).progress.run

    def at(self, landmark: Landmark) -> RestoreState:
        """The state at a landmark. The caller moves the log there, too."""
        assert self._reader is not None
        state = self.state_at(landmark)
        source = state_of(state.partitions, **state.source)
        return RestoreState(landmark.epoch, {self._reader.name: [source]}, state.progress)

    def _stored_progress(self, other_events: int, ended: bool, log_offset: int) -> TaskProgress:
        self._chain.settle_sunk()
        return self.progress(other_events, ended, log_offset)

    def progress(self, other_events: int, ended: bool, log_offset: int) -> TaskProgress:
        """The task's progress, with no pending output rows."""
        partwise = self._chain.partwise
        back_to, rebuild = partwise.rebuild_from() if partwise is not None else (0, [])
        return TaskProgress(
            inputs=self._inputs.progress,
            outputs=self._outputs.next_seqs,
            round_robin=self._outputs.round_robin,
            edge_watermarks=self._outputs.watermarks,
            idle=self._outputs.idle,
            log_offset=log_offset,
            watermarks=self._chain.watermarks,
            received=self._chain.received,
            timers=self._shared.timers.all,
            timers_left_us=self._shared.timers.left_us,
            partitions=self._reader.partitions if self._reader else {},
            other_events=other_events,
            finished=ended,
            ended=self._chain.ended,
            counts=dict(self._shared.counts),
            metrics=dict(self._shared.metrics),
            published=self._outputs.published_seqs,
            frame_rows=self._outputs.frame_rows,
            protocol=self._checkpointing.state(),
            taken=partwise.taken if partwise is not None else 0,
            rebuild_taken=back_to,
            sunk=self._chain.sunk,
            rebuild=rebuild,
            run=(self._reader.run or "") if self._reader else "",
            partition_count=self._reader.partition_count if self._reader else -1,
        )
