"""The input channels of a task: their queues, watermarks and blocked states."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

import msgspec

from clonos_py.causal.determinants import FrameBatch, InputOrder
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import ProtocolError
from clonos_py.model.times import MAX_TIME
from clonos_py.process.contract import InputProgress


class _Channel:
    __slots__ = ("blocked", "progress", "queue", "restarts")

    def __init__(self) -> None:
        self.queue: deque[Frame] = deque()
        self.progress = InputProgress()
        self.blocked = False
        self.restarts = 0


class Inputs:
    """The input channels of one task, by input index."""

    def __init__(self, merge_rows: Sequence[int], frames_merged: int, untimed: Collection[int] = ()) -> None:
        """A task takes at most ``frames_merged`` queued frames together. ``merge_rows``: by channel, the most rows that
        these may have; 0 takes frames one at a time. ``untimed``: the channels whose watermark does not count."""
        self._merge_rows, self._frames_merged = merge_rows, frames_merged
        self._channels = [_Channel() for _ in merge_rows]
        self._timed = [channel for index, channel in enumerate(self._channels) if index not in untimed]
        self._next = 0

    def restore(self, progress: Sequence[InputProgress] | None) -> None:
        """Continues after a snapshot, with empty queues and no blocked channel."""
        self._next = 0
        for index, channel in enumerate(self._channels):
            channel.queue.clear()
            channel.blocked = False
            saved = progress[index] if progress is not None else InputProgress()
            channel.progress = msgspec.structs.replace(saved)

    @property
    def progress(self) -> list[InputProgress]:
        """A copy of each channel's progress."""
        return [msgspec.structs.replace(channel.progress) for channel in self._channels]

    def offer(self, index: int, frame: Frame) -> None:
        """Queues a frame. Raises ProtocolError if it is not the channel's next."""
        channel = self._channels[index]
        expected = channel.queue[-1].seq + 1 if channel.queue else channel.progress.next_seq
        if frame.seq != expected:
            raise ProtocolError(f"input {index} was given frame {frame.seq}, its next is {expected}")
        channel.queue.append(frame)

    def restart(self, index: int, next_seq: int, ended: bool) -> None:
        """The channel's sender has restarted and renumbers its frames from ``next_seq``. ``ended``: whether the channel
        had already ended at the sender's restart point."""
        channel = self._channels[index]
        channel.queue.clear()
        channel.progress = InputProgress(next_seq, ended=ended, settled=ended or channel.progress.settled)
        channel.restarts += 1

    def restarts(self, index: int) -> int:
        """The number of times that the channel's numbering has restarted."""
        return self._channels[index].restarts

    def ready(self, index: int, count: int = 1) -> bool:
        """Whether ``count`` frames of this channel can be taken now."""
        channel = self._channels[index]
        return len(channel.queue) >= count and not channel.blocked

    def choose(self, rows_max: int | None = None) -> InputOrder | FrameBatch | None:
        """Chooses the next ready channel, round-robin, and how many of its frames to take: the nondeterministic choice
        of a running task. Several frames together have at most ``rows_max`` rows. None if no channel is ready."""
        count = len(self._channels)
        for step in range(count):
            index = (self._next + step) % count
            if self.ready(index):
                self._next = (index + 1) % count
                return self._arrival(index, rows_max)
        return None

    def _arrival(self, index: int, rows_max: int | None) -> InputOrder | FrameBatch:
        frames = self._mergeable(index, rows_max)
        return InputOrder(index, 1) if frames == 1 else FrameBatch(index, frames)

    def _mergeable(self, index: int, rows_max: int | None) -> int:
        """How many queued frames can be taken together, at least 1: data frames within the limits of frames and
        rows."""
        if not self._merge_rows[index]:
            return 1  # not even frames without rows: the sender's window may be a single frame
        count = rows = 0
        most = min(self._merge_rows[index], rows_max or self._merge_rows[index])
        for frame in islice(self._channels[index].queue, self._frames_merged):
            rows += frame.rows.num_rows if frame.rows is not None else 0
            if frame.kind is not FrameKind.DATA or rows > most:
                break
            count += 1
        return max(1, count)

    def take(self, index: int) -> Frame:
        channel = self._channels[index]
        if not self.ready(index):
            raise ProtocolError(f"input {index} has nothing to take, or is blocked")
        frame = channel.queue.popleft()
        channel.progress.next_seq = frame.seq + 1
        return frame

    def waiting(self, index: int, count: int) -> list[Frame]:
        """The next ``count`` queued frames of a channel, without taking them."""
        return list(islice(self._channels[index].queue, count))

    def block(self, index: int) -> None:
        """Blocks a channel: none of its frames is taken until ``release``."""
        self._channels[index].blocked = True

    def release(self) -> None:
        """Unblocks all channels."""
        for channel in self._channels:
            channel.blocked = False

    @property
    def holds_back(self) -> bool:
        """Whether a blocked channel has frames."""
        return any(channel.blocked and channel.queue for channel in self._channels)

    @property
    def all_blocked(self) -> bool:
        return all(channel.blocked for channel in self._channels)

    def observe(self, index: int, frame: Frame) -> None:
        """Updates the channel's watermark and idleness from a frame."""
        progress = self._channels[index].progress
        progress.watermark = max(progress.watermark, frame.watermark)
        progress.idle = frame.idle
        progress.settled = progress.settled or frame.idle or frame.kind is FrameKind.END

    def settled(self, indexes: Iterable[int]) -> bool:
        """Whether each of these channels has ended, or has been idle."""
        return all(self._channels[index].progress.settled for index in indexes)

    def end(self, index: int) -> bool:
        """Marks the channel as ended. True if all channels have ended."""
        progress = self._channels[index].progress
        progress.ended, progress.idle = True, False
        return all(c.progress.ended for c in self._channels)

    @property
    def watermark(self) -> int:
        """The lowest watermark of the channels that are neither idle nor ended. If there are none, the highest one of
        all channels: no row is expected, so that none holds back the windows of those that have arrived. The order in
        which channels have become idle does not count. When a channel resumes it may be lower again. MAX_TIME once all
        have ended, MIN_TIME while none is known."""
        if all(channel.progress.ended for channel in self._channels):
            return MAX_TIME
        known = [channel.progress for channel in self._timed]
        active = [progress.watermark for progress in known if not progress.ended and not progress.idle]
        return min(active) if active else max(progress.watermark for progress in known)

    @property
    def idle(self) -> bool:
        """Whether all channels that have not ended, and whose watermark counts, are idle."""
        unfinished = [c.progress for c in self._timed if not c.progress.ended]
        return bool(unfinished) and all(progress.idle for progress in unfinished)
