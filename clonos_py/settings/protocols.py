"""The checkpoint protocols that the setting ``protocol`` may name."""

from __future__ import annotations

from clonos_py.model.protocols import ProtocolProperties

ALIGNED = ProtocolProperties("aligned", stores_frames=False)
"""Coordinated checkpoints with aligned barriers."""
UNALIGNED = ProtocolProperties("unaligned")
"""Coordinated checkpoints in which no task waits for barriers (E4)."""
UNCOORDINATED = ProtocolProperties("uncoordinated", coordinated=False, barriers=False)
"""Each task takes its snapshots alone (E5)."""
INDUCED = ProtocolProperties("communication-induced", coordinated=False, barriers=False, stamps=True)
"""Uncoordinated, and a task takes a snapshot before frames that could make an earlier one useless (E10)."""
CONTINUOUS = ProtocolProperties("continuous", coordinated=False, barriers=False, partwise=True)
"""Each task takes its snapshots alone, in which windows and keys are saved at different positions (E14)."""
PROTOCOLS = (ALIGNED, UNALIGNED, UNCOORDINATED, INDUCED, CONTINUOUS)
PROTOCOL_NAMES = tuple(protocol.name for protocol in PROTOCOLS)
COMPARED_NAMES = tuple(protocol.name for protocol in PROTOCOLS if protocol.rolls_back)
"""Those with both recoveries, which CheckMate's evaluation compares."""
DEFAULT_PROTOCOL = ALIGNED
