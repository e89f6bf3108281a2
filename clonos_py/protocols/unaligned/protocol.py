"""Unaligned checkpoints: the parts."""

from __future__ import annotations

from functools import partial

from clonos_py.protocols.parts.channel_state import ChannelState
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints, all_tasks
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.protocols.unaligned.task import UnalignedBarriers
from clonos_py.settings.protocols import UNALIGNED

UNALIGNED_BARRIERS = CheckpointProtocol(
    UNALIGNED, partial(CoordinatedCheckpoints, triggered=all_tasks), UnalignedBarriers, ChannelState
)
