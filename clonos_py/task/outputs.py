"""Turns rows into frames: partitions the operators' output, coalesces batches, and cuts frames (D2, D5).

Cuts by size are deterministic. The task machine requests cuts by linger time, barrier and end, and logs their cause. It
also logs changes of the frame size: frames to slow receivers are small. This module assigns the numbers of frames and
those of the pieces that causal sinks publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.causal.determinants import FrameRows
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.columns.keys import key_groups
from clonos_py.columns.partition import split
from clonos_py.columns.views import concat
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import Produced, TaskProgress

FRAMES_AT_ONCE = 4
"""The number of frames that one read gives each channel."""


class _Channel:
    """The rows of one output channel that are not cut yet. ``frame_rows``: the most rows of a frame."""

    __slots__ = (
        "batches", "frame_rows", "index", "marker_us", "next_seq", "row_count", "sent_idle", "sent_watermark"
    )  # fmt: skip

    def __init__(self, index: int, frame_rows: int) -> None:
        self.index = index
        self.restore(0, frame_rows)

    def restore(self, next_seq: int, frame_rows: int, watermark: int = MIN_TIME, idle: bool = False) -> None:
        """Sets the state right after a barrier, which carried this watermark and idleness to the receiver."""
        self.frame_rows = frame_rows
        self.next_seq = next_seq
        self.batches: list[pa.RecordBatch] = []
        self.row_count = 0
        self.sent_watermark = watermark
        self.sent_idle = idle
        self.marker_us = 0


class _EdgeOutput:
    """The channels of one outgoing edge."""

    def __init__(self, edge: Edge, channels: Sequence[_Channel], own_index: int, parallelism: int, groups: int) -> None:
        self.edge = edge
        self.channels = list(channels)
        self.watermark = MIN_TIME
        self.first_turn = self.turn = own_index % max(1, len(self.channels))
        self._targets = (np.arange(groups, dtype=np.int64) * parallelism // groups).astype(np.int32)
        self._groups = groups

    def shares(self, rows: pa.RecordBatch) -> list[tuple[_Channel, pa.RecordBatch]]:
        """Splits rows among the channels."""
        if len(self.channels) == 1:
            return [(self.channels[0], rows)]
        match self.edge.partitioning:
            case Partitioning.HASH:
                targets = self._targets[key_groups(rows, self.edge.keys, self._groups)]
                parts = split(rows, targets, len(self.channels))
                return [(c, part) for c, part in zip(self.channels, parts, strict=True) if part is not None]
            case Partitioning.REBALANCE:
                channel = self.channels[self.turn]
                self.turn = (self.turn + 1) % len(self.channels)
                return [(channel, rows)]
            case _:
                return [(channel, rows) for channel in self.channels]


class Outputs:
    """All output channels of one task. ``cut`` collects frames until the machine takes them."""

    def __init__(self, plan: PhysicalPlan, task: TaskId) -> None:
        channels = plan.outputs[task]
        edges = [plan.edges[channel.edge] for channel in channels]
        self._adaptive = [edge.adaptive for edge in edges]
        self._edge_rows = [edge.frame_rows for edge in edges]
        """By channel: the most rows that a frame may ever have."""
        self._requested: dict[int, int] = {}
        """By channel: how many rows a frame should have."""
        self._channels = [_Channel(i, self._frame_rows_at(i, None)) for i in range(len(channels))]
        self._published_seqs = [0] * len(plan.by_name[task.vertex].causal_sinks)
        self._edges: dict[int, _EdgeOutput] = {}
        for edge in plan.edges:
            if edge.source == task.vertex:
                own = [self._channels[i] for i, c in enumerate(channels) if c.edge == edge.id]
                parallelism = plan.by_name[edge.target].parallelism
                self._edges[edge.id] = _EdgeOutput(edge, own, task.index, parallelism, plan.key_groups)
        self.epoch = 0
        self.idle = False
        self.cut: list[tuple[int, Frame]] = []
        self.published: list[tuple[int, Frame]] = []
        self.stamp: Callable[[int], bytes] | None = None
        """Returns the stamp of a frame that is cut now for an output channel; None if the protocol uses no stamps."""

    def restore(self, epoch: int, progress: TaskProgress | None) -> None:
        """Continues after the barrier of checkpoint ``epoch``, with no pending rows."""
        self.epoch, self.cut, self.published = epoch, [], []
        self._published_seqs = list(progress.published) if progress else [0] * len(self._published_seqs)
        self._requested = {}
        self.idle = progress.idle if progress else False
        for number, output in enumerate(self._edges.values()):
            if progress:
                output.turn, output.watermark = progress.round_robin[number], progress.edge_watermarks[number]
            else:
                output.turn, output.watermark = output.first_turn, MIN_TIME
            for channel in output.channels:
                next_seq = progress.outputs[channel.index] if progress else 0
                frame_rows = self._frame_rows_at(channel.index, progress)
                channel.restore(next_seq, frame_rows, output.watermark, self.idle)

    @property
    def next_seqs(self) -> list[int]:
        return [channel.next_seq for channel in self._channels]

    @property
    def frame_rows(self) -> list[int]:
        """By channel: the most rows of a frame."""
        return [channel.frame_rows for channel in self._channels]

    @property
    def published_seqs(self) -> list[int]:
        return list(self._published_seqs)

    @property
    def round_robin(self) -> list[int]:
        return [output.turn for output in self._edges.values()]

    @property
    def watermarks(self) -> list[int]:
        return [output.watermark for output in self._edges.values()]

    # ---- the size of frames

    def _frame_rows_at(self, output: int, progress: TaskProgress | None) -> int:
        """A channel's frame size after a restore. Adaptive frames begin with one row: the time per row is unknown at
        first."""
        if not self._adaptive[output]:
            return self._edge_rows[output]
        return min(progress.frame_rows[output], self._edge_rows[output]) if progress and progress.frame_rows else 1

    def request_frame_rows(self, output: int, rows: int) -> None:
        """The receiver of a channel takes so many rows in one step."""
        self._requested[output] = rows

    def resizing(self) -> FrameRows | None:
        """The next channel whose frame size should change, and its new size, a power of two. It changes if it should be
        twice as large or half as large, so that it does not oscillate."""
        while self._requested:
            output, requested = self._requested.popitem()
            now, most = self._channels[output].frame_rows, self._edge_rows[output]
            right = min(most, 1 << requested.bit_length() - 1)
            if right >= 2 * now or 2 * requested <= now or right == most > now:
                return FrameRows(output, right)
        return None

    def resize(self, change: FrameRows) -> None:
        """Changes the most rows of a frame of this channel."""
        self._channels[change.output].frame_rows = change.rows

    @property
    def rows_at_once(self) -> int | None:
        """The number of rows to emit at once, so that no channel gets many frames of them; None if there is no limit. A
        task may be some steps ahead of its receivers' wants."""
        sizes = [c.frame_rows for c, adaptive in zip(self._channels, self._adaptive, strict=True) if adaptive]
        return FRAMES_AT_ONCE * sum(sizes) if sizes else None

    # ---- rows

    def emit(self, edge: int, rows: pa.RecordBatch) -> None:
        """Adds rows to an edge, and cuts frames that are large enough."""
        output = self._edges[edge]
        for channel, share in output.shares(rows):
            limit = channel.frame_rows
            if channel.row_count and channel.row_count + share.num_rows > limit:
                self._cut(output, channel)
            start = 0
            while share.num_rows - start > limit:
                channel.batches.append(share.slice(start, limit))
                channel.row_count = limit
                self._cut(output, channel)
                start += limit
            channel.batches.append(share.slice(start) if start else share)
            channel.row_count += share.num_rows - start
            if channel.row_count * 2 > limit:
                self._cut(output, channel)

    def publish(self, number: int, rows: pa.RecordBatch) -> None:
        """Publishes rows of the task's causal sink ``number`` at once, without coalescing."""
        self.published.append((number, Frame(self._published_seqs[number], FrameKind.DATA, self.epoch, rows=rows)))
        self._published_seqs[number] += 1

    def advance(self, edge: int, watermark: int) -> None:
        """Sets the watermark of an edge: the rows emitted so far are complete up to it."""
        self._edges[edge].watermark = watermark

    def mark(self, marker_us: int) -> None:
        """The next frame of every channel carries this latency marker."""
        for channel in self._channels:
            channel.marker_us = channel.marker_us or marker_us

    @property
    def waiting(self) -> bool:
        """Whether a linger cut would send anything."""
        return next(self._uncut(), None) is not None

    @property
    def uncut(self) -> list[tuple[int, int]]:
        """What a linger cut would send: (output channel, frame number)."""
        return [(channel.index, channel.next_seq) for _, channel in self._uncut()]

    def _uncut(self) -> Iterator[tuple[_EdgeOutput, _Channel]]:
        for output in self._edges.values():
            for channel in output.channels:
                if channel.row_count or output.watermark > channel.sent_watermark or self.idle != channel.sent_idle:
                    yield output, channel

    def flush(self) -> None:
        """Cuts all pending rows, and frames for watermarks and idleness that receivers do not have yet."""
        for output, channel in self._uncut():
            self._cut(output, channel)

    def close_with(self, kind: FrameKind, checkpoint: int = 0) -> None:
        """Flushes, then sends a BARRIER or END on every channel."""
        self.flush()
        for output in self._edges.values():
            for channel in output.channels:
                self._cut(output, channel, kind, checkpoint)

    def _cut(
        self, output: _EdgeOutput, channel: _Channel, kind: FrameKind = FrameKind.DATA, checkpoint: int = 0
    ) -> None:
        rows = None
        if channel.batches:
            rows = concat(channel.batches)
        frame = Frame(
            channel.next_seq,
            kind,
            self.epoch,
            output.watermark,
            self.idle,
            checkpoint,
            rows,
            channel.marker_us,
            self.stamp(channel.index) if self.stamp is not None else b"",
        )
        self.cut.append((channel.index, frame))
        channel.next_seq += 1
        channel.batches, channel.row_count, channel.marker_us = [], 0, 0
        channel.sent_watermark, channel.sent_idle = output.watermark, self.idle

    def take(self, log: LogSegment | None = None) -> Produced:
        """The frames cut since the last call, and ``log``, on which they depend."""
        produced = Produced(log, self.cut, self.published)
        self.cut, self.published = [], []
        return produced
