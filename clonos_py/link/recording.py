"""The determinants that a link keeps for the record: all of its own task's log since the restart point (F1).

They are grouped by epoch. The snapshot that ends an epoch makes its group a *piece*: a chunk with one encoded segment
per row. Storage gives a piece its location, so that a later snapshot only refers to it. A snapshot names all pieces
since the restart point before it. So an aborted checkpoint loses nothing, and the pieces of the snapshots that count
make the log of a task without gaps.

This is apart from the causal store: what is shared and held there for recovery does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos_py.checkpoint.log_chunks import log_chunk, logs_in
from clonos_py.model.errors import ProtocolError
from clonos_py.model.segments import LogSegment
from clonos_py.model.state import Chunk


class LogRecording:
    """The recorded log of one task since its restart point. One that is off keeps nothing."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self._pieces: dict[int, Chunk] = {}
        """By epoch, in order: the pieces of epochs that are over."""
        self._stops: dict[int, int] = {}
        """By epoch that is over: the offset at which it ended."""
        self._open: dict[int, list[LogSegment]] = {}
        """By epoch, in order: the segments of later epochs."""
        self._end: int | None = None
        """The offset after the last segment; None: nothing is held."""

    def start(self, log: Iterable[LogSegment]) -> None:
        """The task replays this log of its predecessor, which begins at its restart point. It belongs to the record
        whole, also where the task starts in the middle of it."""
        for segment in log:
            self.produced(segment)

    def produced(self, segment: LogSegment) -> None:
        """Takes the next segment of the log. Raises ProtocolError if it leaves a gap, or if its epoch is over."""
        if not self.on:
            return
        if self._end is not None and segment.start != self._end:
            raise ProtocolError(f"the record has a gap: it is held up to {self._end}, next is {segment.start}")
        if self._pieces and segment.epoch <= max(self._pieces):
            raise ProtocolError(f"epoch {segment.epoch} of the record is over, and a segment of it was cut")
        self._open.setdefault(segment.epoch, []).append(segment)
        self._end = segment.stop

    def taken(self, checkpoint: int) -> tuple[Chunk, ...]:
        """The pieces that the snapshot for ``checkpoint`` names, oldest first. All of its epochs are over."""
        for epoch in [epoch for epoch in self._open if epoch < checkpoint]:
            segments = self._open.pop(epoch)
            self._pieces[epoch], self._stops[epoch] = log_chunk(segments), segments[-1].stop
        return tuple(piece for epoch, piece in self._pieces.items() if epoch < checkpoint)

    def complete(self, checkpoint: int) -> None:
        """The task's restart point is its snapshot for ``checkpoint``: drops what that covers."""
        self._open = {epoch: segments for epoch, segments in self._open.items() if epoch >= checkpoint}
        self._pieces = {epoch: piece for epoch, piece in self._pieces.items() if epoch >= checkpoint}
        self._stops = {epoch: self._stops[epoch] for epoch in self._pieces}

    def since(self, offset: int) -> list[LogSegment]:
        """What is held of the log from this offset on."""
        closed = (logs_in(piece) for epoch, piece in self._pieces.items() if self._stops[epoch] > offset)
        return [s for segments in (*closed, *self._open.values()) for s in segments if s.start >= offset]
