"""Uncoordinated checkpoints: the parts."""

from __future__ import annotations

from clonos_py.protocols.parts.independent import independent_checkpoints
from clonos_py.protocols.parts.retained import RetainedState
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.settings.protocols import UNCOORDINATED

OWN_SNAPSHOTS = CheckpointProtocol(UNCOORDINATED, independent_checkpoints, link=RetainedState)
