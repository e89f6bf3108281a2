"""The receiving side of a link: what each input channel has received, and from which sender it may receive more."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.link.instructions import SnapshotPosition
from clonos_py.link.stamps import ReceivedStamps
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import ChannelId, TaskId
from clonos_py.model.messages import Expectation, Peer


def frames_acknowledged(window: int) -> int:
    """The number of frames that a receiver acknowledges with one message if more are waiting."""
    return max(1, window // 4)


class InputChannel:
    """One input: its sender, its connection, and checksums of frames that its sender may have to rebuild (D12)."""

    def __init__(self, index: int, channel: ChannelId, sender: TaskId, window: int, stamped: int = 0) -> None:
        """``stamped``: the number of tasks if frames carry stamps, else 0."""
        self.index, self.channel, self.sender = index, channel, sender
        self.peer: Peer | None = None
        self.connection: int | None = None
        self.opened = False
        """Whether the log-only frame of the connection has arrived."""
        self.failures = 0
        """How often a connection was lost or could not be opened since one was last open."""
        self.restarts = 0
        """How often the numbering has restarted."""
        self.renumbers = False
        """Whether the sender has restarted without its log since a connection to it was last opened. Then the frames
        received so far do not determine the number of the next one."""
        self._window, self._stamped = window, stamped
        self._stamps: ReceivedStamps | None = None
        self.start_from(0)

    def start_from(self, next_seq: int) -> None:
        """The frame ``next_seq`` is the next one at the task's restart point. -1: the sender had restarted without its
        log, and nothing had arrived since."""
        self.covered = next_seq
        """The restart point covers the frames below this number."""
        self.snapshot = SnapshotPosition(0, 0)
        """The last snapshot of the task, for a sender that stores channel state."""
        self.renumbers = self.renumbers or next_seq < 0
        self._number_from(next_seq)

    def _number_from(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self.acknowledged = next_seq
        """The task has taken the frames below this number, according to the last acknowledgement sent."""
        self._checksums: deque[tuple[int, int, int]] = deque()
        """(sequence number, checksum, epoch)"""

    def follow(self, peer: Peer) -> None:
        """From now on ``peer`` is the sender. If it has restarted without its log and fails before it is connected, its
        replacement numbers frames as it did."""
        self.peer, self.failures = peer, 0
        self.renumbers = self.renumbers or peer.reset

    def void(self) -> None:
        """Frames that have arrived but were not taken are void: they will come again under other numbers."""
        self._number_from(-1)
        self.restarts += 1

    def open(self, header: FrameHeader) -> bool:
        """Takes the log-only frame. Returns whether the numbering restarts. Raises ProtocolError on a gap."""
        self.opened, self.failures = True, 0
        self._stamps = ReceivedStamps(self._stamped) if self._stamped else None
        renumbered, self.renumbers = self.renumbers, False
        if header.seq == self.next_seq:
            return False
        if not renumbered:
            raise ProtocolError(
                f"{self.sender} offers frames from {header.seq} on {self.channel}, {self.next_seq} is next"
            )
        self._number_from(header.seq)
        self.restarts += 1
        return True

    def receive(self, header: FrameHeader, frame: Frame) -> Frame:
        """Takes the next frame and returns it with its full stamp. Raises ProtocolError if it is not the next one, and
        CodecError if its stamp cannot be read."""
        if header.seq != self.next_seq or not self.opened:
            raise ProtocolError(f"{self.sender} sent frame {header.seq} on {self.channel}, {self.next_seq} is next")
        self.next_seq += 1
        self._checksums.append((header.seq, header.checksum, header.epoch))
        return frame if self._stamps is None else replace(frame, stamp=self._stamps.read(header.meta))

    def acknowledge(self, taken: int) -> int | None:
        """The task has taken all frames below ``taken``. Returns what to acknowledge now; None to wait for more."""
        if taken < self.next_seq and taken - self.acknowledged < frames_acknowledged(self._window):
            return None
        self.acknowledged = taken
        return taken

    def cover(self, next_seq: int) -> None:
        """The task's restart point has moved: it covers the frames below ``next_seq``."""
        self.covered = next_seq

    def drop_before(self, epoch: int) -> None:
        """The sender restarts at the beginning of ``epoch`` or later, and does not rebuild the frames that it cut
        before. These are part of its restart point unless that of the receiver covers them (E7)."""
        while self._checksums and self._checksums[0][2] < epoch:
            self._checksums.popleft()

    @property
    def has_received(self) -> bool:
        """Whether frames have arrived that the sender may have to rebuild."""
        return bool(self._checksums)

    @property
    def expectation(self) -> Expectation:
        return Expectation(self.channel, self.next_seq, [(seq, checksum) for seq, checksum, _ in self._checksums])

    @property
    def uncovered(self) -> int:
        """The number of frames that have arrived and that the restart point does not cover."""
        return max(0, self.next_seq - self.covered)
