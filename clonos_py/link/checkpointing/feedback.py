"""Channel state of feedback edges, for loops with aligned barriers (E11).

No other channel holds frames between aligned snapshots (Carbone et al., Lightweight asynchronous snapshots, for cyclic
graphs).

The head of a loop takes its snapshot when it has the barriers of all channels that enter the loop. When the barriers
reach the last task of the loop, that task takes its own snapshot. It stores with it the frames that it has cut for the
head since the head's snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.channel.frames import FrameCodec
from clonos_py.link.checkpointing.channel_state import ChannelState
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import ChannelId
from clonos_py.model.plan import PhysicalPlan


class FeedbackState(ChannelState):
    """Channel state of feedback channels only; most jobs have none."""

    def __init__(self, plan: PhysicalPlan, outputs: Sequence[OutputChannel], codec: FrameCodec) -> None:
        super().__init__(plan, [output for output in outputs if output.feedback], codec)

    def reports(self, channel: ChannelId) -> bool:
        return self._plan.edges[channel.edge].feedback
