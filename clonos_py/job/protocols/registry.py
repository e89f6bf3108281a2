"""The coordinator's sides of the checkpoint protocols, by name."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints
from clonos_py.job.protocols.interface import JobCheckpointing
from clonos_py.job.protocols.unaligned import UnalignedCheckpoints
from clonos_py.job.protocols.uncoordinated import UncoordinatedCheckpoints
from clonos_py.model.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED, ProtocolSides

JOB_SIDES: ProtocolSides[Callable[[CoordinatorContext], JobCheckpointing]] = ProtocolSides()
JOB_SIDES.register(ALIGNED, CoordinatedCheckpoints)
JOB_SIDES.register(UNALIGNED, UnalignedCheckpoints)
JOB_SIDES.register(UNCOORDINATED, UncoordinatedCheckpoints)
JOB_SIDES.register(INDUCED, UncoordinatedCheckpoints)
