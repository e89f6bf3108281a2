"""A checkpoint protocol in one folder: each task takes its snapshot alone, when the coordinator triggers it; there are
no barriers.

The snapshots count if no frame lies between them: then they are what aligned barriers would have given, and recovery is
the same. If not, the checkpoint is given up, and the next interval has another chance.
"""

from __future__ import annotations

from functools import partial

from clonos_py.model.protocols import ProtocolProperties
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints, all_tasks
from clonos_py.protocols.protocol import CheckpointProtocol
from tests.protocols.lone.fitting import nothing_in_flight

LONE = CheckpointProtocol(
    ProtocolProperties("lone", barriers=False, stores_frames=False),
    partial(CoordinatedCheckpoints, triggered=all_tasks, fits=nothing_in_flight),
)
