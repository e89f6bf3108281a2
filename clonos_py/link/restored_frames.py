"""Restores the stored frames of a restart point to the in-flight logs that had retained them (channel state, E3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from clonos_py.channel.frames import FrameCodec
from clonos_py.channel.retained import RetainedFrame, frame_of
from clonos_py.link.instructions import Loaded
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CheckpointError, UnreadableCheckpointError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import FrameRecord, FrameRun


class RestoredFrames:
    """The frames loaded with a restart point, checked against the positions of the outputs."""

    def __init__(self, plan: PhysicalPlan, codec: FrameCodec, check: bool) -> None:
        """``check``: whether frames carry checksums."""
        self._plan, self._codec, self._check = plan, codec, check
        self._known: dict[int, dict[int, tuple[FrameRecord, RetainedFrame]]] = {}
        """By output and sequence number: the frames of the last restart point. If the next one has the same record, the
        frame is the same and is reused."""

    def begun(self) -> None:
        """The task has begun: no further restart point will be loaded."""
        self._known = {}

    def of(self, output: OutputChannel, next_seq: int, loaded: Loaded) -> list[RetainedFrame]:
        """The frames of ``output`` below ``next_seq`` that its receiver's restart point does not cover. Raises
        CheckpointError if they are not contiguous up to there, or do not belong to this edge."""
        checkpoint = loaded.restore.checkpoint
        runs = loaded.frames.get(output.index, ())
        seqs = [record.seq for run in runs for record in run.records]
        if seqs != list(range(next_seq - len(seqs), next_seq)):
            raise UnreadableCheckpointError(
                f"checkpoint {checkpoint}: frames {seqs} of {output.channel} are stored, those before {next_seq} "
                "belong there; resume from an earlier checkpoint, or start over with --fresh"
            )
        known = self._known[output.index] = dict(self._entries(output, runs, checkpoint))
        return [_copy(entry) for _, entry in known.values()]

    def _entries(
        self, output: OutputChannel, runs: Iterable[FrameRun], checkpoint: int
    ) -> Iterator[tuple[int, tuple[FrameRecord, RetainedFrame]]]:
        known, schema = self._known.get(output.index, {}), self._plan.edges[output.channel.edge].schema
        for run in runs:
            if not run.schema.equals(schema):
                raise CheckpointError(
                    f"checkpoint {checkpoint}: frame {run.start} of {output.channel} was in flight with other columns "
                    "than the job has now; resume with the former code, or start over with --fresh"
                )
            for record, message in zip(run.records, run.bodies, strict=True):
                before = known.get(record.seq)
                if before is None or before[0] is not record:
                    before = record, self._entry(output, record, message, schema, checkpoint)
                yield record.seq, before

    def _entry(
        self, output: OutputChannel, record: FrameRecord, message: pa.Buffer | None, schema: pa.Schema, checkpoint: int
    ) -> RetainedFrame:
        try:
            body = self._codec.body(message, schema) if message is not None else None
            frame = frame_of(record)
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise UnreadableCheckpointError(
                f"checkpoint {checkpoint}: frame {record.seq} of {output.channel} cannot be read: {problem}; resume "
                "from an earlier checkpoint, or start over with --fresh"
            ) from problem
        return output.entry(frame, record.rows, body, self._codec, self._check)


def _copy(e: RetainedFrame) -> RetainedFrame:
    """A fresh copy, since an in-flight log changes the entries that it retains."""
    return RetainedFrame(e.frame, e.row_count, e.body, e.size_bytes, e.checksum)
