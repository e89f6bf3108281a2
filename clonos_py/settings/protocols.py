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
PROTOCOLS = (ALIGNED, UNALIGNED, UNCOORDINATED, INDUCED)
PROTOCOL_NAMES = tuple(protocol.name for protocol in PROTOCOLS)
DEFAULT_PROTOCOL = ALIGNED
