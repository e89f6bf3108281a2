"""In-memory outputs of causal sinks, which outlive processes, and the sinks that write to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import CausalSink, OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment


class MemoryOutput:
    """The output of one causal sink's task: the log and checksums written ahead, by epoch, and the visible rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        """``rows``: the list to which visible rows are added."""
        self.attempt = Attempt(0, 0)
        self._rows, self._out = rows, -1
        self._logs: dict[int, list[LogSegment]] = {}
        self._checksums: dict[int, dict[int, int]] = {}

    def acquire(self, attempt: Attempt, checkpoint: int) -> PublishedOutput:
        """Takes over the output for an attempt. Raises SinkError if a newer attempt has it."""
        if attempt <= self.attempt:
            raise SinkError(f"attempt {attempt} comes too late: the output belongs to {self.attempt}")
        self.attempt = attempt
        self.truncate_before(checkpoint)
        log = {segment for held in self._logs.values() for segment in held}
        written = {seq: checksum for known in self._checksums.values() for seq, checksum in known.items()}
        return PublishedOutput(list(log), {seq: checksum for seq, checksum in written.items() if seq <= self._out})

    def write(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        self._logs.setdefault(epoch, []).extend(log)
        self._checksums.setdefault(epoch, {}).update((piece.seq, piece.checksum) for piece in pieces)

    def show(self, piece: OutputSegment) -> None:
        self._rows.extend(piece.rows.to_pylist())
        self._out = piece.seq

    def truncate_before(self, checkpoint: int) -> None:
        self._logs = {epoch: log for epoch, log in self._logs.items() if epoch >= checkpoint}
        self._checksums = {epoch: known for epoch, known in self._checksums.items() if epoch >= checkpoint}


class MemoryCausalSink(CausalSink):
    """Writes to an output until a newer attempt acquires it."""

    _attempt: Attempt | None = None

    @property
    def output(self) -> MemoryOutput:
        raise NotImplementedError

    def acquire(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        self._attempt = attempt
        return self.output.acquire(attempt, checkpoint)

    def append(
        self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment], torn_after: int | None = None
    ) -> None:
        """Writes the log, then shows the pieces. ``torn_after``: the number of visible pieces when the process dies."""
        if self._attempt == self.output.attempt:
            self.output.write(epoch, log, pieces)
            for piece in pieces[:torn_after]:
                self.output.show(piece)

    def truncate_before(self, checkpoint: int) -> None:
        if self._attempt == self.output.attempt:
            self.output.truncate_before(checkpoint)
