"""A checkpoint protocol in one folder: each task takes its snapshot alone, when the coordinator calls; no barriers.

The snapshots count if no frame lies between them: then they are what aligned barriers would have given, and recovery is
the same. If not, the checkpoint is given up, and the next interval has another chance. The name of this module is that
of the protocol: ``PhysicalPlan.protocol``.
"""

from __future__ import annotations

from clonos_py.job.protocols.registry import JOB_SIDES
from clonos_py.task.checkpointing.registry import TASK_SIDES
from tests.protocols.lone.job import LoneCheckpoints
from tests.protocols.lone.task import LoneSnapshots

TASK_SIDES.register(__name__, LoneSnapshots)
JOB_SIDES.register(__name__, LoneCheckpoints)
