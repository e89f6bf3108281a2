"""The causal sinks of one link: each is like an output channel whose receiver holds everything and never fails (D16).

    to be acquired --OutputAcquired--> acquired: pieces that are visible are compared, the others written

When an output is acquired, the logs that it holds are taken into the store. From then on this process answers for the
output in every round, so that a replay repeats what is visible, even if all other holders have failed. Determinants are
written with the pieces that depend on them, and before these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame, FrameCodec
from clonos_py.link import instructions as io
from clonos_py.model.errors import DivergenceError, SinkError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.operators import OutputSegment
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.segments import LogSegment


class SinkOutput:
    """The known contents of one sink's output, and the pieces to be written to it."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.acquired = False
        self.checksums: dict[int, int] = {}
        self.next_seq = 0
        """Pieces below this number are visible, or are from before the restart point."""
        self.waiting: list[tuple[int, OutputSegment]] = []
        """(epoch, piece)"""
        self.writing = 0
        """The number of pieces whose writing has not ended."""
        self.unwritten: deque[int] = deque()
        """The numbers of the pieces that wait or are being written."""
        self._epoch, self._position = -1, 0

    def take(self, frame: Frame, checksum: int, task: TaskId) -> None:
        """Takes a piece. Raises DivergenceError if it is visible with other content."""
        assert frame.rows is not None
        if frame.seq >= self.next_seq:
            self.waiting.append((frame.epoch, OutputSegment(frame.seq, checksum, frame.rows)))
            self.unwritten.append(frame.seq)
        elif self.checksums.pop(frame.seq, checksum) != checksum:
            raise DivergenceError(
                f"piece {frame.seq} of sink {self.name!r} was rebuilt with other content than {task} has "
                "written before: an operator upstream is not deterministic; find it with 'clonos check'"
            )

    def writes(self, store: CausalStore) -> Iterator[io.WriteOutput]:
        """One write for each epoch."""
        waiting, self.waiting = self.waiting, []
        for epoch, entries in groupby(waiting, key=lambda entry: entry[0]):
            log = self._log(epoch, store)
            pieces = [piece for _, piece in entries]
            self.writing += len(pieces)
            yield io.WriteOutput(self.number, self.name, epoch, log, pieces)

    def _log(self, epoch: int, store: CausalStore) -> list[LogSegment]:
        """The segments since the last write. The first write of an epoch repeats those held of this epoch: what was
        written before is deleted when the epoch's checkpoint is complete."""
        new = store.since(self._position, lambda log: True)
        if epoch != self._epoch:
            self._epoch = epoch
            new = [s for s in new if s.epoch < epoch] + [
                s for s in store.since(0, lambda log: True) if s.epoch >= epoch
            ]
        self._position = store.position
        return new


class CausalOutputs:
    """The causal outputs of one link."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, store: CausalStore, codec: FrameCodec) -> None:
        self._task, self._store, self._codec = task, store, codec
        self._shape = " ".join(map(_shape, plan.vertices))
        self._outputs = [SinkOutput(n, name) for n, name in enumerate(plan.by_name[task.vertex].causal_sinks)]

    def acquire(self, attempt: Attempt, checkpoint: int, lineage: str) -> list[io.Instruction]:
        """Acquires all outputs: this process becomes ``attempt`` of its task and starts from ``checkpoint``."""
        return [io.AcquireOutput(o.number, o.name, attempt, checkpoint, self._shape, lineage) for o in self._outputs]

    def acquired(self, event: io.OutputAcquired) -> None:
        output = self._outputs[event.number]
        for segment in sorted(event.published.log, key=attrgetter("log", "incarnation", "start")):
            self._store.append(segment)
        output.acquired, output.checksums = True, dict(event.published.checksums)
        output.next_seq = max(output.checksums, default=-1) + 1

    @property
    def ready(self) -> bool:
        """Whether the contents of all outputs are loaded."""
        return all(output.acquired for output in self._outputs)

    @property
    def unwritten(self) -> int:
        """The number of unwritten pieces of the output that has the most of them."""
        return max((len(output.unwritten) for output in self._outputs), default=0)

    def written_below(self, published: Sequence[int]) -> bool:
        """Whether all pieces below these numbers, one for each output, are visible."""
        return all(
            not output.unwritten or output.unwritten[0] >= number
            for output, number in zip(self._outputs, published, strict=True)
        )

    def check_visible(self, start: Sequence[int], end: Sequence[int]) -> None:
        """Raises SinkError if an acquired output lacks one of the pieces [start, end)."""
        for output, first, below in zip(self._outputs, start, end, strict=True):
            lacking = [seq for seq in range(first, below) if seq not in output.checksums] if output.acquired else []
            if lacking:
                raise SinkError(
                    f"the output of sink {output.name!r} lacks {len(lacking)} pieces that {self._task} has written "
                    "since its last checkpoint: it was changed from outside, or its storage lost what it had "
                    "confirmed; the task starts again from that checkpoint"
                )

    def published(self, frames: Sequence[tuple[int, Frame]]) -> list[io.Instruction]:
        """Takes what sinks have emitted. Pieces that arrive during a write are written together after it."""
        for number, frame in frames:
            rows = frame.rows
            checksum = self._codec.checksum(self._codec.encode(rows), sampled=False) if rows is not None else 0
            self._outputs[number].take(frame, checksum, self._task)
        writes: list[io.Instruction] = []
        for number in {number for number, _ in frames}:
            if not self._outputs[number].writing:
                writes += self._outputs[number].writes(self._store)
        return writes

    def written(self, event: io.OutputWritten) -> list[io.Instruction]:
        output = self._outputs[event.number]
        output.writing -= event.pieces
        for _ in range(event.pieces):
            output.unwritten.popleft()
        return [] if output.writing else list(output.writes(self._store))

    def flush(self) -> list[io.Instruction]:
        """Writes everything before a snapshot, which covers all that was emitted before it."""
        work: list[io.Instruction] = []
        for output in self._outputs:
            work += output.writes(self._store)
            work.append(io.SettleOutput(output.number, output.name))
        return work


def _shape(vertex: Vertex) -> str:
    """What must be equal for another run to repeat the work of a task of this vertex."""
    return f"{vertex.name}={vertex.parallelism}:{','.join(operator.name for operator in vertex.operators)}"
