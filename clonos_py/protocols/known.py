"""All checkpoint protocols, by name."""

from __future__ import annotations

from clonos_py.model.plan import PhysicalPlan
from clonos_py.protocols.aligned.protocol import ALIGNED_BARRIERS
from clonos_py.protocols.continuous.protocol import FOOTPRINTS
from clonos_py.protocols.induced.protocol import INDUCED_SNAPSHOTS
from clonos_py.protocols.protocol import CheckpointProtocol
from clonos_py.protocols.unaligned.protocol import UNALIGNED_BARRIERS
from clonos_py.protocols.uncoordinated.protocol import OWN_SNAPSHOTS

KNOWN: dict[str, CheckpointProtocol] = {
    protocol.name: protocol
    for protocol in (ALIGNED_BARRIERS, UNALIGNED_BARRIERS, OWN_SNAPSHOTS, INDUCED_SNAPSHOTS, FOOTPRINTS)
}


def protocol_of(plan: PhysicalPlan) -> CheckpointProtocol:
    """The checkpoint protocol of a job. Raises KeyError if it is none of these."""
    return KNOWN[plan.protocol.name]
