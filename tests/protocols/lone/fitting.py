"""Which snapshots count: those between which no frame lies."""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.checkpoint.line import LineChannel, Positions, drained
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import TaskHandle
from clonos_py.process.progress import progress_of


def nothing_in_flight(plan: PhysicalPlan, handles: Sequence[TaskHandle]) -> bool:
    channels = [
        LineChannel(sender, plan.outputs[sender].index(channel), receiver, plan.inputs[receiver].index(channel))
        for channel in plan.channels
        for sender, receiver in [(plan.sender(channel), plan.receiver(channel))]
    ]
    snapshots = {handle.task: [_positions(handle)] for handle in handles}
    return drained(snapshots, dict.fromkeys(snapshots, 0), channels)


def _positions(handle: TaskHandle) -> Positions:
    progress = progress_of(handle)
    return Positions([channel.next_seq for channel in progress.inputs], progress.outputs)
