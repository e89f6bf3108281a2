"""Communication-induced checkpoints: the parts."""

from __future__ import annotations

from clonos_py.protocols.induced.task import InducedSnapshots
from clonos_py.protocols.parts.independent import independent_checkpoints
from clonos_py.protocols.parts.retained import RetainedState
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.settings.protocols import INDUCED

INDUCED_SNAPSHOTS = CheckpointProtocol(INDUCED, independent_checkpoints, InducedSnapshots, RetainedState)
