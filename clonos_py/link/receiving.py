"""The receiving side of a link: what each input channel has got, and from whom it may still get something."""

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
    """How many frames a receiver acknowledges with one message, if more are waiting."""
    return max(1, window // 4)


class InputChannel:
    """One input: its sender, the connection to it, and checksums of what its sender may have to make again (D12)."""

    def __init__(self, index: int, channel: ChannelId, sender: TaskId, window: int, stamped: int = 0) -> None:
        """``stamped``: frames carry stamps, of so many tasks."""
        self.index, self.channel, self.sender = index, channel, sender
        self.peer: Peer | None = None
        self.connection: int | None = None
        self.opened = False
        """Whether the connection's log-only frame has come."""
        self.failures = 0
        """Connections lost, or not made, since one was open."""
        self.restarts = 0
        """How often the numbering has restarted."""
        self.renumbers = False
        """Whether the sender has restarted since a connection to it was last opened, so that what has come before
        says nothing about what comes next."""
        self._window, self._stamped = window, stamped
        self._stamps: ReceivedStamps | None = None
        self.start_from(0)

    def start_from(self, next_seq: int) -> None:
        """The restart point of the task is where ``next_seq`` is next; -1: where the sender has restarted without its
        log, and nothing had come since."""
        self.covered = next_seq
        """The restart point covers the frames below."""
        self.snapshot = SnapshotPosition(0, 0)
        """The last snapshot of the task, for a sender that stores channel state."""
        self.renumbers = self.renumbers or next_seq < 0
        self._number_from(next_seq)

    def _number_from(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self.acknowledged = next_seq
        """The task has taken the frames below, by the last acknowledgement to the sender."""
        self._checksums: deque[tuple[int, int, int]] = deque()
        """(sequence number, checksum, epoch)"""

    def follow(self, peer: Peer) -> None:
        """From now on ``peer`` is the sender. One that has restarted may fail before it is reached: then its
        replacement numbers as it did."""
        self.peer, self.failures = peer, 0
        self.renumbers = self.renumbers or peer.reset

    def void(self) -> None:
        """What has come, and was not taken yet, will come again under other numbers."""
        self._number_from(-1)
        self.restarts += 1

    def open(self, header: FrameHeader) -> bool:
        """Takes the log-only frame. True if the numbering restarts. Raises ProtocolError on a gap."""
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
        """Takes the frame that has come with this header; gives it with its whole stamp. Raises ProtocolError unless it
        is the next one, and CodecError if its stamp cannot be read."""
        if header.seq != self.next_seq or not self.opened:
            raise ProtocolError(f"{self.sender} sent frame {header.seq} on {self.channel}, {self.next_seq} is next")
        self.next_seq += 1
        self._checksums.append((header.seq, header.checksum, header.epoch))
        return frame if self._stamps is None else replace(frame, stamp=self._stamps.read(header.stamp))

    def acknowledge(self, taken: int) -> int | None:
        """The task has taken everything below ``taken``: what to acknowledge now, None to wait for more."""
        if taken < self.next_seq and taken - self.acknowledged < frames_acknowledged(self._window):
            return None
        self.acknowledged = taken
        return taken

    def cover(self, next_seq: int) -> None:
        """The task's restart point has moved: it covers the frames below ``next_seq``."""
        self.covered = next_seq

    def drop_before(self, epoch: int) -> None:
        """The sender restarts where ``epoch`` begins, or later. It does not make again what it cut before: that is part
        of its restart point, if that of the receiver does not cover it (E7)."""
        while self._checksums and self._checksums[0][2] < epoch:
            self._checksums.popleft()

    @property
    def has_received(self) -> bool:
        """Whether frames have come that the sender may have to make again."""
        return bool(self._checksums)

    @property
    def expectation(self) -> Expectation:
        return Expectation(self.channel, self.next_seq, [(seq, checksum) for seq, checksum, _ in self._checksums])

    @property
    def uncovered(self) -> int:
        """How many frames have come that the restart point does not cover."""
        return max(0, self.next_seq - self.covered)
