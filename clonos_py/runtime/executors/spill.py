"""Executes a link's requests to local disk: writes, reads and frees retained frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clonos_py.link.instructions import (
    FramesNotRead,
    FramesNotWritten,
    FramesRead,
    FramesWritten,
    FreeFrames,
    LinkEvent,
    ReadFrames,
    Spilling,
    WriteFrames,
)
from clonos_py.model.errors import CapacityError, SpillError
from clonos_py.runtime.spill import FrameShelf


class SpillExecutor:
    """Owns the shelf of one process. Used by one thread only."""

    def __init__(self, shelf: FrameShelf) -> None:
        self._shelf = shelf

    def carry_out(self, work: Spilling) -> Iterator[LinkEvent]:
        """Does one piece of work, and yields the link events that answer it. The caller keeps the link's order."""
        match work:
            case WriteFrames():
                yield from self._write(work)
            case ReadFrames(output, places, checkpoint):
                try:
                    yield FramesRead(output, [(seq, self._shelf.read(place)) for seq, place in places], checkpoint)
                except SpillError as problem:
                    yield FramesNotRead(problem)
            case FreeFrames(places):
                for place in places:
                    self._shelf.free(place)

    def close(self) -> None:
        """Frees everything. There must be no more work."""
        self._shelf.close()

    def _write(self, work: WriteFrames) -> Iterator[LinkEvent]:
        """Stores the frames before the first one that cannot be written."""
        places: list[tuple[int, Any]] = []
        try:
            for seq, body in work.bodies:
                places.append((seq, self._shelf.write(body)))
        except CapacityError as problem:
            seqs = [seq for seq, _ in work.bodies[len(places) :]]
            yield FramesNotWritten(work.output, seqs, str(problem))
        if places:
            yield FramesWritten(work.output, places)
