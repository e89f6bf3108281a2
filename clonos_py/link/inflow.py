"""The input of a link: takes what arrives, hands frames to the task, and acknowledges those that the task has taken.

An acknowledgement says more than which frames were taken: which logs this process holds, which frames the restart point
of its task covers, and, for a sender that stores channel state, which of them the last snapshot covers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.link import instructions as io
from clonos_py.link.catching_up import CatchingUp
from clonos_py.link.held_logs import HeldLogs
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import Restoring
from clonos_py.model.ids import ChannelId
from clonos_py.process.contract import Deliver, FramesTaken, Renumber, TaskProgress


class Inflow:
    """The inputs of one link."""

    def __init__(
        self,
        inputs: Sequence[InputChannel],
        held_logs: HeldLogs,
        catching_up: CatchingUp,
        restoring: Restoring,
        reports: Callable[[ChannelId], bool],
    ) -> None:
        """``reports``: whether the sender of a channel must know which frames a snapshot covers."""
        self._inputs, self._held_logs, self._catching_up = inputs, held_logs, catching_up
        self._restoring, self._reports = restoring, reports

    @property
    def opened(self) -> bool:
        """Whether the first frame of each connection has arrived."""
        return all(channel.opened for channel in self._inputs)

    # ---- what arrives

    def channel_on(self, connection: int) -> InputChannel | None:
        """The input with this connection."""
        for channel in self._inputs:
            if channel.connection == connection:
                return channel
        return None

    def arrived(self, event: io.Arrived) -> list[io.Instruction]:
        channel, header = self.channel_on(event.connection), event.header
        assert channel is not None, "frames of closed connections are ignored"
        if header.kind is FrameKind.LOG_ONLY:
            return self._open(channel, header)
        if header.kind is FrameKind.LOGS_ARRIVED:
            self._held_logs.take(channel.index, header)
            return []
        frame = channel.receive(header, event.frame)
        self._catching_up.received(channel.index, header)
        self._held_logs.take(channel.index, header)
        return [io.SendToTask(Deliver(channel.index, frame))]

    def _open(self, channel: InputChannel, header: FrameHeader) -> list[io.Instruction]:
        """The first frame of a connection has arrived. What the snapshot covers is said again: the sender may not have
        served the connection yet when it was said, and waits for it."""
        self._catching_up.opened(channel.index, header)
        renumbered = channel.open(header)
        self._held_logs.take(channel.index, header)
        again = self.acknowledge(channel, channel.acknowledged) if channel.snapshot.checkpoint else []
        return [*again, *([self._renumber(channel)] if renumbered else [])]

    def connected(self, event: io.Connected) -> list[io.Instruction]:
        """A connection is open. Says what the sender does not know from the subscription."""
        channel = self._inputs[event.input]
        known = event.hello.covered >= channel.covered and not channel.snapshot.checkpoint
        if channel.connection != event.connection or known:
            return []
        return self.acknowledge(channel, channel.acknowledged)

    def void(self, channels: Sequence[InputChannel]) -> list[io.Instruction]:
        """Their senders restart without their logs: frames that have arrived and were not taken will come again."""
        for channel in channels:
            channel.void()
        return [self._renumber(channel) for channel in channels]

    def _renumber(self, channel: InputChannel) -> io.SendToTask:
        restart_point = self._restoring.restart_point
        ended = restart_point is not None and restart_point.inputs[channel.index].ended
        return io.SendToTask(Renumber(channel.index, channel.next_seq, ended))

    # ---- acknowledgements

    def has_other_numbers(self, event: FramesTaken) -> bool:
        """Whether the channel was numbered again since the task took these frames."""
        channel = self._inputs[event.input]
        return channel.renumbers or event.restarts < channel.restarts

    def taken(self, event: FramesTaken) -> list[io.Instruction]:
        """The task has taken frames."""
        channel = self._inputs[event.input]
        taken = channel.acknowledge(event.next_seq)
        return [] if taken is None else self.acknowledge(channel, taken, event.rows_requested, event.rows_at_once)

    def acknowledge(
        self, channel: InputChannel, taken: int, rows_requested: int = 0, rows_at_once: int = 0
    ) -> list[io.Instruction]:
        if channel.connection is None:
            return []
        held = self._held_logs.unacknowledged(channel.index)
        given = io.Acknowledgement(taken, held, rows_requested, rows_at_once, channel.covered, channel.snapshot)
        return [io.SendAck(channel.connection, given)]

    def report_snapshot(self, checkpoint: int, progress: TaskProgress) -> list[io.Instruction]:
        """Tells senders that store channel state which of their frames the snapshot covers."""
        instructions: list[io.Instruction] = []
        for channel in self._inputs:
            if self._reports(channel.channel):
                channel.snapshot = io.SnapshotPosition(checkpoint, progress.inputs[channel.index].next_seq)
                instructions += self.acknowledge(channel, channel.acknowledged)
        return instructions

    def cover(self, progress: TaskProgress) -> list[io.Instruction]:
        """The restart point has moved to ``progress``: tells the senders."""
        instructions: list[io.Instruction] = []
        for channel in self._inputs:
            channel.cover(progress.covered[channel.index])
            if not channel.renumbers:
                instructions += self.acknowledge(channel, channel.acknowledged)
        return instructions
