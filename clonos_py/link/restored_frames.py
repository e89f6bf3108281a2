"""Frames of a restart point back in the in-flight logs that had retained them (channel state, E3)."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.channel.frames import Frame, FrameCodec, FrameKind
from clonos_py.channel.inflight import RetainedFrame
from clonos_py.link.instructions import Loaded
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CheckpointError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrame


class RestoredFrames:
    """What was loaded with a restart point, checked against what the outputs go on with."""

    def __init__(self, plan: PhysicalPlan, codec: FrameCodec, check: bool) -> None:
        """``check``: whether frames carry checksums."""
        self._plan, self._codec, self._check = plan, codec, check

    def of(self, output: OutputChannel, next_seq: int, loaded: Loaded) -> list[RetainedFrame]:
        """The frames of ``output`` below ``next_seq`` that its receiver's restart point does not cover. Raises
        CheckpointError if they are not contiguous up to there, or not of this edge."""
        stored = loaded.frames.get(output.index, ())
        seqs = [frame.seq for frame, _ in stored]
        if seqs != list(range(next_seq - len(seqs), next_seq)):
            raise CheckpointError(
                f"checkpoint {loaded.restore.checkpoint}: frames {seqs} of {output.channel} are stored, those before "
                f"{next_seq} belong there; resume from an earlier checkpoint, or start over with --fresh"
            )
        schema = self._plan.edges[output.channel.edge].schema
        for frame, rows in stored:
            if rows is not None and not rows.schema.equals(schema):
                raise CheckpointError(
                    f"checkpoint {loaded.restore.checkpoint}: frame {frame.seq} of {output.channel} was under way with "
                    "other columns than the job has now; resume with the former code, or start over with --fresh"
                )
        return [
            output.restored(_frame(frame, loaded, rows), frame.rows, self._codec, self._check) for frame, rows in stored
        ]


def _frame(stored: StoredFrame, loaded: Loaded, rows: pa.RecordBatch | None) -> Frame:
    try:
        kind = FrameKind(stored.kind)
    except ValueError as problem:
        raise CheckpointError(
            f"checkpoint {loaded.restore.checkpoint}: frame {stored.seq} is of an unknown kind, {stored.kind}; resume "
            "from an earlier checkpoint, or start over with --fresh"
        ) from problem
    return Frame(
        stored.seq, kind, stored.epoch, stored.watermark, stored.idle, stored.checkpoint, rows, 0, stored.stamp
    )
