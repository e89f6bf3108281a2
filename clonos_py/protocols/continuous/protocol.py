"""Continuous eventual checkpoints: the parts.

Snapshots are those that tasks take alone. What is special is in them: an operator that can save its state in parts
stores the log of their footprints, and its restore takes input again since the oldest one (``task/partwise.py``).
"""

from __future__ import annotations

from clonos_py.protocols.parts.independent import independent_checkpoints
from clonos_py.protocols.parts.retained import RetainedState
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.settings.protocols import CONTINUOUS

FOOTPRINTS = CheckpointProtocol(CONTINUOUS, independent_checkpoints, link=RetainedState)
