"""Frames of a restart point back in the in-flight logs that had retained them (channel state, E3)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from clonos_py.channel.frames import Frame, FrameCodec, FrameKind
from clonos_py.channel.inflight import RetainedFrame
from clonos_py.link.instructions import Loaded
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CheckpointError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import FrameRecord, FrameRun


class RestoredFrames:
    """What was loaded with a restart point, checked against what the outputs go on with."""

    def __init__(self, plan: PhysicalPlan, codec: FrameCodec, check: bool) -> None:
        """``check``: whether frames carry checksums."""
        self._plan, self._codec, self._check = plan, codec, check

    def of(self, output: OutputChannel, next_seq: int, loaded: Loaded) -> list[RetainedFrame]:
        """The frames of ``output`` below ``next_seq`` that its receiver's restart point does not cover. Raises
        CheckpointError if they are not contiguous up to there, or not of this edge."""
        checkpoint = loaded.restore.checkpoint
        runs = loaded.frames.get(output.index, ())
        seqs = [record.seq for run in runs for record in run.records]
        if seqs != list(range(next_seq - len(seqs), next_seq)):
            raise CheckpointError(
                f"checkpoint {checkpoint}: frames {seqs} of {output.channel} are stored, those before {next_seq} "
                "belong there; resume from an earlier checkpoint, or start over with --fresh"
            )
        return [entry for run in runs for entry in self._entries(output, run, checkpoint)]

    def _entries(self, output: OutputChannel, run: FrameRun, checkpoint: int) -> Iterator[RetainedFrame]:
        schema = self._plan.edges[output.channel.edge].schema
        if not run.schema.equals(schema):
            raise CheckpointError(
                f"checkpoint {checkpoint}: frame {run.start} of {output.channel} was under way with other columns than "
                "the job has now; resume with the former code, or start over with --fresh"
            )
        for record, message in zip(run.records, run.bodies, strict=True):
            try:
                body = self._codec.body(message, schema) if message is not None else None
                frame = _frame(record)
            except (pa.ArrowException, OSError, ValueError) as problem:
                raise CheckpointError(
                    f"checkpoint {checkpoint}: frame {record.seq} of {output.channel} cannot be read: {problem}; "
                    "resume from an earlier checkpoint, or start over with --fresh"
                ) from problem
            yield output.entry(frame, record.rows, body, self._codec, self._check)


def _frame(r: FrameRecord) -> Frame:
    return Frame(r.seq, FrameKind(r.kind), r.epoch, r.watermark, r.idle, r.checkpoint, None, 0, r.stamp)
