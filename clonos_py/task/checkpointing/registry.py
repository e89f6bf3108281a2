"""The task sides of the checkpoint protocols, by protocol name."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED, ProtocolSides
from clonos_py.task.checkpointing.aligned import AlignedBarriers
from clonos_py.task.checkpointing.induced import InducedSnapshots
from clonos_py.task.checkpointing.interface import TaskCheckpointing
from clonos_py.task.checkpointing.unaligned import UnalignedBarriers
from clonos_py.task.checkpointing.uncoordinated import OwnSnapshots
from clonos_py.task.inputs import Inputs

TASK_SIDES: ProtocolSides[Callable[[Inputs, PhysicalPlan, TaskId], TaskCheckpointing]] = ProtocolSides()
TASK_SIDES.register(ALIGNED, AlignedBarriers)
TASK_SIDES.register(UNALIGNED, UnalignedBarriers)
TASK_SIDES.register(UNCOORDINATED, OwnSnapshots)
TASK_SIDES.register(INDUCED, InducedSnapshots)
