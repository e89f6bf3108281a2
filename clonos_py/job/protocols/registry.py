"""The coordinator's sides of the checkpoint protocols, by name."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints
from clonos_py.job.protocols.interface import JobCheckpointing
from clonos_py.job.protocols.recovery_line import LineCheckpoints
from clonos_py.job.protocols.unaligned import UnalignedCheckpoints
from clonos_py.job.protocols.uncoordinated import UncoordinatedCheckpoints
from clonos_py.model.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED, ProtocolSides


def alone(context: CoordinatorContext) -> JobCheckpointing:
    """For protocols in which tasks take snapshots alone. Without logs, snapshots that fit together must be searched."""
    return LineCheckpoints(context) if context.plan.rollback else UncoordinatedCheckpoints(context)


JOB_SIDES: ProtocolSides[Callable[[CoordinatorContext], JobCheckpointing]] = ProtocolSides()
JOB_SIDES.register(ALIGNED, CoordinatedCheckpoints)
JOB_SIDES.register(UNALIGNED, UnalignedCheckpoints)
JOB_SIDES.register(UNCOORDINATED, alone)
JOB_SIDES.register(INDUCED, alone)
