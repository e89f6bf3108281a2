"""The causal sinks of one link: each like an output channel whose receiver keeps everything and never dies (D16).

    to be claimed --OutputClaimed--> claimed: pieces that are out are compared, the others written

What an output holds is taken into the store when it is claimed. From then on this process answers for the output in
every round, so that what is visible is repeated, whatever else has failed. Determinants are written with the pieces
that depend on them, and before these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame, FrameCodec
from clonos_py.link import instructions as io
from clonos_py.model.errors import DivergenceError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.operators import OutputSegment
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.segments import LogSegment


class _Output:
    """What is known of one sink's output, and what is to be written there."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.claimed = False
        self.checksums: dict[int, int] = {}
        self.next_seq = 0
        """Pieces below are out, or known from before the restart point."""
        self.waiting: list[tuple[int, OutputSegment]] = []
        """(epoch, piece)"""
        self.writing = 0
        """Pieces on their way."""
        self._epoch, self._position = -1, 0

    def take(self, frame: Frame, checksum: int, task: TaskId) -> None:
        """Raises DivergenceError if the piece is out with other content."""
        assert frame.rows is not None
        if frame.seq >= self.next_seq:
            self.waiting.append((frame.epoch, OutputSegment(frame.seq, checksum, frame.rows)))
        elif self.checksums.pop(frame.seq, checksum) != checksum:
            raise DivergenceError(
                f"piece {frame.seq} of sink {self.name!r} was rebuilt with other content than {task} has "
                "written before: an operator upstream is not deterministic; find it with 'clonos check'"
            )

    def writes(self, store: CausalStore) -> Iterator[io.WriteOutput]:
        """One for each epoch."""
        waiting, self.waiting = self.waiting, []
        for epoch, entries in groupby(waiting, key=lambda entry: entry[0]):
            log = self._log(epoch, store)
            pieces = [piece for _, piece in entries]
            self.writing += len(pieces)
            yield io.WriteOutput(self.number, self.name, epoch, log, pieces)

    def _log(self, epoch: int, store: CausalStore) -> list[LogSegment]:
        """What has come since the last write. The first write of an epoch repeats what is held of this epoch: what was
        written before goes when the epoch's checkpoint is complete."""
        new = store.since(self._position, lambda task: True)
        if epoch != self._epoch:
            self._epoch = epoch
            new = [s for s in new if s.epoch < epoch] + [
                s for s in store.since(0, lambda task: True) if s.epoch >= epoch
            ]
        self._position = store.position
        return new


class CausalOutputs:
    """One per link."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, store: CausalStore, codec: FrameCodec) -> None:
        self._task, self._store, self._codec = task, store, codec
        self._shape = " ".join(map(_shape, plan.vertices))
        self._outputs = [_Output(n, name) for n, name in enumerate(plan.by_name[task.vertex].causal_sinks)]

    def claim(self, attempt: Attempt, checkpoint: int, lineage: str) -> list[io.Instruction]:
        """This process is ``attempt`` of its task now, and starts from ``checkpoint``."""
        return [io.ClaimOutput(o.number, o.name, attempt, checkpoint, self._shape, lineage) for o in self._outputs]

    def claimed(self, event: io.OutputClaimed) -> None:
        output = self._outputs[event.number]
        for segment in sorted(event.published.log, key=attrgetter("task", "incarnation", "start")):
            self._store.append(segment)
        output.claimed, output.checksums = True, dict(event.published.checksums)
        output.next_seq = max(output.checksums, default=-1) + 1

    @property
    def ready(self) -> bool:
        """Whether all that the outputs hold is known here."""
        return all(output.claimed for output in self._outputs)

    @property
    def unwritten(self) -> int:
        """Pieces of the output that has most of them to write."""
        return max((len(output.waiting) + output.writing for output in self._outputs), default=0)

    def published(self, frames: Sequence[tuple[int, Frame]]) -> list[io.Instruction]:
        """Takes what sinks have emitted; what comes while a write is under way goes together after it."""
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
        return [] if output.writing else list(output.writes(self._store))

    def flush(self) -> list[io.Instruction]:
        """A snapshot follows, which covers all that was emitted before it."""
        work: list[io.Instruction] = []
        for output in self._outputs:
            work += output.writes(self._store)
            work.append(io.SettleOutput(output.number, output.name))
        return work


def _shape(vertex: Vertex) -> str:
    """What must be the same for another run to repeat what a task of this vertex did."""
    return f"{vertex.name}={vertex.parallelism}:{','.join(operator.name for operator in vertex.operators)}"
