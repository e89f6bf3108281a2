"""The sending side of a link: retained frames, their receivers, and the delta that goes with every frame (D3, D6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clonos_py.causal.log import CausalStore
from clonos_py.channel.cursor import Cursor
from clonos_py.channel.frames import Frame, FrameCodec, FrameHeader, FrameKind
from clonos_py.channel.retained import RetainedFrame, RetainedFrames, Retention
from clonos_py.link.instructions import Acknowledgement, SnapshotPosition
from clonos_py.link.receiving import frames_acknowledged
from clonos_py.link.stamps import SentStamps
from clonos_py.model.errors import DivergenceError, ProtocolError
from clonos_py.model.ids import Attempt, ChannelId, LogId, TaskId
from clonos_py.model.messages import Expectation
from clonos_py.model.plan import Edge
from clonos_py.model.segments import Reach, StableMark
from clonos_py.process.contract import ChannelLimits

NO_ATTEMPT = Attempt(-1, -1)


class SendWindow(NamedTuple):
    """How many frames of a channel may be in flight: ``most``, and ``fewest`` to a slow receiver."""

    fewest: int
    most: int


def window_of(edge: Edge, limits: ChannelLimits) -> SendWindow:
    """Frames that are taken together must fit into it beside those that are taken but not acknowledged yet."""
    if not edge.adaptive:
        return SendWindow(limits.window, limits.window)
    fewest = limits.frames_merged + frames_acknowledged(limits.window) if edge.merge_rows else 1
    return SendWindow(min(fewest, limits.window), limits.window)


class Outgoing(NamedTuple):
    """A frame to send now. ``new``: no predecessor is known to have sent it."""

    header: FrameHeader
    body: Any
    size_bytes: int
    new: bool


class OutputChannel:
    """One output: its retained frames, its receiver, and how far the current connection has carried the logs.

    What a receiver holds is tracked per connection only. It holds what this connection carried, and what it
    acknowledged to have received from other senders, which is not sent again.
    """

    def __init__(
        self,
        index: int,
        channel: ChannelId,
        receiver: TaskId,
        shared: frozenset[LogId],
        *,
        retain: bool = True,
        regenerates: bool = False,
        drops_taken: bool = False,
        sampled: bool = False,
        window: SendWindow = SendWindow(16, 16),  # noqa: B008 - frozen
        stamped: int = 0,
        feedback: bool = False,
    ) -> None:
        """``regenerates``: frames that are not retained are regenerated on request. ``drops_taken``: frames that were
        received are not retained, but regenerated. ``sampled``: see the vertex. ``window``: how many frames may be in
        flight; fewer for a slow receiver. ``stamped``: the number of tasks if frames carry stamps, else 0.
        ``feedback``: see the edge."""
        self.index, self.channel, self.receiver, self.feedback = index, channel, receiver, feedback
        self._window = window
        self._shared_logs, self.retain = shared, retain
        replayed = Retention.UNTIL_TAKEN if drops_taken else Retention.UNTIL_COVERED
        self._retention, self._regenerates = replayed if retain else Retention.UNTIL_SENT, regenerates
        self._sampled = sampled
        self._stamped = stamped
        self._stamps: SentStamps | None = None
        self.connection: int | None = None
        self.attempt = NO_ATTEMPT
        self.restore(0)

    def restore(self, next_seq: int, entries: Sequence[RetainedFrame] = ()) -> None:
        """Starts from a restart point: ``entries`` are the retained frames below ``next_seq``. No log has what these
        were made from, so they are retained until they are covered."""
        self.has_restored_frames = bool(entries)
        drops_taken = self._retention is Retention.UNTIL_TAKEN
        retention = Retention.UNTIL_COVERED if drops_taken and entries else self._retention
        self.frames = RetainedFrames(entries[0].frame.seq if entries else next_seq, retention, self._regenerates)
        self.cursor = Cursor(self.frames)
        self._position = self._marks_carried = 0
        self._held: dict[LogId, Reach] = {}
        self._incomplete: frozenset[LogId] = frozenset()
        """The logs that the last frame on this connection called incomplete."""
        self._expected: dict[int, int] = {}
        self._first_new = next_seq
        self._rows_requested = self._rows_at_once = self._frame_rows = 0
        self.snapshot = SnapshotPosition(0, 0)
        """The last snapshot of the receiver, if channel state is stored."""
        for entry in entries:
            self.frames.append(entry)
        self.cursor.sent_before = self.frames.next_seq

    @property
    def window(self) -> int:
        """The number of frames that may be in flight: as many as hold the rows that the receiver wants."""
        most = self._window.most
        if not self._rows_requested:
            return most
        return max(self._window.fewest, min(most, self._rows_requested // max(1, self._frame_rows)))

    def expect(self, expectation: Expectation) -> None:
        """Sets the frames of the predecessor that the receiver has; rebuilt frames must equal them."""
        self._expected = dict(expectation.checksums)
        self._first_new = expectation.next_seq

    def retained(self, frame: Frame, codec: FrameCodec, check: bool) -> None:
        """Appends a frame. Raises DivergenceError if it differs from the predecessor's frame with this number."""
        entry = self._encoded(frame, codec, check)
        self._frame_rows = entry.row_count or self._frame_rows
        self.frames.append(entry)

    def regenerated(self, frame: Frame, codec: FrameCodec, check: bool) -> None:
        """Takes a regenerated frame, or drops it if it is not missing any more. Raises DivergenceError if it differs
        from the frame that was sent under this number."""
        if frame.seq in self.cursor.missing:
            self.cursor.take_regenerated(self._encoded(frame, codec, check))

    def _encoded(self, frame: Frame, codec: FrameCodec, check: bool) -> RetainedFrame:
        rows = frame.rows
        if rows is None:
            return self.entry(frame, 0, None, codec, check)
        return self.entry(_without_rows(frame), rows.num_rows, codec.encode(rows), codec, check)

    def entry(self, frame: Frame, rows: int, body: Any, codec: FrameCodec, check: bool) -> RetainedFrame:
        """A frame as the log retains it: the body, which holds ``rows`` rows, apart from the frame. Raises
        DivergenceError if it differs from the frame that the predecessor sent under this number."""
        checksum = codec.checksum(body, self._sampled) if check and body is not None else 0
        sent = self._expected.pop(frame.seq, checksum)
        regenerated, again = self.cursor.regenerated, self.frames.drops_taken or frame.seq < self.frames.kept
        known = regenerated.checksum_of(frame.seq, sent) if regenerated is not None and again else sent
        if sent != checksum or known != checksum:
            raise DivergenceError(
                f"frame {frame.seq} on {self.channel} was rebuilt with other content than was sent to "
                f"{self.receiver} before: an operator of this task is not deterministic; find it with 'clonos check'"
            )
        return RetainedFrame(frame, rows, body, codec.size_bytes(body) if body is not None else 0, checksum)

    def subscribe(self, connection: int, attempt: Attempt, next_seq: int, store: CausalStore) -> FrameHeader:
        """Starts serving a receiver. Returns the log-only frame that opens the connection."""
        if next_seq < 0:
            next_seq = self.frames.first if self.retain else self.frames.next_seq
        self.cursor.connect(next_seq)
        self.connection, self.attempt = connection, attempt
        self._position = self._marks_carried = 0
        self._held = {}
        self._stamps = SentStamps(self._stamped) if self._stamped else None
        sent_before = max(self.cursor.sent_before, self._first_new)
        return self._logs(FrameKind.LOG_ONLY, next_seq, store, sent_before)

    def logs_arrived(self, store: CausalStore) -> FrameHeader | None:
        """The frame that tells the receiver that logs are complete now which the last frame called incomplete; None if
        there are none. Without it, a receiver that gets no further frame would wait for them for ever."""
        arrived = self._incomplete.difference(store.incomplete)
        if self.connection is None or arrived.isdisjoint(self._shared_logs):
            return None
        return self._logs(FrameKind.LOGS_ARRIVED, 0, store)

    def _logs(self, kind: FrameKind, seq: int, store: CausalStore, sent_before: int = 0) -> FrameHeader:
        delta, incomplete = self._delta(store), self._note_incomplete(store)
        return FrameHeader(seq, kind, 0, 0, False, 0, 0, 0, 0, self._marks(store), delta, sent_before, incomplete)

    def _note_incomplete(self, store: CausalStore) -> tuple[LogId, ...]:
        """The logs that a frame calls incomplete; notes them as those of the last frame."""
        if store.incomplete or self._incomplete:
            self._incomplete = frozenset(store.incomplete)
        return store.incomplete

    def acknowledged(self, given: Acknowledgement) -> bool:
        """Takes an acknowledgement. Returns whether the number of rows that the receiver takes at once has changed by
        much."""
        self.cursor.acknowledge(given.next_seq)
        self._held.update((reach.log, reach) for reach in given.held)
        if not given.rows_requested:
            return False
        changed = given.rows_at_once.bit_length() != self._rows_at_once.bit_length()
        self._rows_requested, self._rows_at_once = given.rows_requested, given.rows_at_once
        return changed

    def cover(self, below: int) -> bool:
        """The receiver's restart point covers the frames below ``below``. Returns whether it covers more than it
        did."""
        return self.cursor.cover(below)

    def check_caught_up(self) -> None:
        """Raises ProtocolError if the receiver's restart point covers frames that this running task has not cut."""
        if self.cursor.covered > self.frames.next_seq:
            raise ProtocolError(
                f"the restart point of {self.receiver} covers the frames below {self.cursor.covered} on {self.channel},"
                f" but the replay of their sender has cut only those below {self.frames.next_seq}"
            )

    def _delta(self, store: CausalStore) -> list[Any]:
        delta = store.since(self._position, self._shared_logs.__contains__) if self._shared_logs else []
        self._position = store.position
        if not self._held:
            return delta
        return [s for s in delta if (held := self._held.get(s.log)) is None or s.reach > held]

    def _marks(self, store: CausalStore) -> tuple[StableMark, ...]:
        carried, self._marks_carried = self._marks_carried, store.marks_taken
        return store.marks_since(carried)

    def disconnect(self) -> int | None:
        """Ends the connection and returns its number."""
        connection, self.connection = self.connection, None
        self.cursor.disconnect()
        return connection

    def sendable(self, store: CausalStore) -> Iterator[Outgoing]:
        """Frames to send now, each with a delta cut at this moment."""
        window, cursor = self.window, self.cursor
        while (entry := cursor.pending(window)) is not None:
            frame = entry.frame
            header = FrameHeader(
                frame.seq,
                frame.kind,
                frame.epoch,
                frame.watermark,
                frame.idle,
                frame.checkpoint,
                entry.row_count,
                frame.marker_us,
                entry.checksum,
                self._marks(store),
                self._delta(store),
                incomplete=self._note_incomplete(store),
                meta=self._stamps.write(frame.stamp) if self._stamps is not None else b"",
            )
            body = entry.body
            cursor.sent()
            yield Outgoing(header, body, entry.size_bytes, frame.seq >= self._first_new)


def _without_rows(f: Frame) -> Frame:
    return Frame(f.seq, f.kind, f.epoch, f.watermark, f.idle, f.checkpoint, None, f.marker_us, f.stamp)
