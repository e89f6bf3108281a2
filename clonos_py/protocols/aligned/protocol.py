"""Coordinated checkpoints with aligned barriers: the parts."""

from __future__ import annotations

from functools import partial

from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.protocols.parts.channel_state import ChannelState, feedback_edges
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.settings.protocols import ALIGNED

ALIGNED_BARRIERS = CheckpointProtocol(
    ALIGNED, CoordinatedCheckpoints, AlignedBarriers, partial(ChannelState, edges=feedback_edges)
)
