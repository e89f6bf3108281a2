"""The links' sides of the checkpoint protocols, by name. A protocol without an entry uses the base class."""

from __future__ import annotations

from clonos_py.link.checkpointing.channel_state import ChannelState
from clonos_py.link.checkpointing.feedback import FeedbackState
from clonos_py.link.checkpointing.interface import LinkCheckpointing
from clonos_py.link.checkpointing.retained import RetainedState, StampedState
from clonos_py.model.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED, ProtocolSides

LINK_SIDES: ProtocolSides[type[LinkCheckpointing]] = ProtocolSides(LinkCheckpointing)
LINK_SIDES.register(ALIGNED, FeedbackState)
LINK_SIDES.register(UNALIGNED, ChannelState)
LINK_SIDES.register(UNCOORDINATED, RetainedState)
LINK_SIDES.register(INDUCED, StampedState)
