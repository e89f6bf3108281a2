"""The coordinator's side: all tasks are called, and the snapshots count if no frame lies between them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clonos_py.checkpoint.line import LineChannel, Positions, drained
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints
from clonos_py.model.snapshots import TaskHandle
from clonos_py.process.contract import TaskProgress


class LoneCheckpoints(CoordinatedCheckpoints):
    """One checkpoint at a time, as with barriers; which tasks it calls and which snapshots count differs."""

    def called(self) -> list[TaskProcess]:
        return self._context.fleet.with_role(Role.ACTIVE)

    def fits(self, handles: Sequence[TaskHandle]) -> bool:
        plan = self._context.plan
        channels = [
            LineChannel(sender, plan.outputs[sender].index(channel), receiver, plan.inputs[receiver].index(channel))
            for channel in plan.channels
            for sender, receiver in [(plan.sender(channel), plan.receiver(channel))]
        ]
        snapshots = {handle.task: [_positions(handle)] for handle in handles}
        return drained(snapshots, dict.fromkeys(snapshots, 0), channels)


def _positions(handle: TaskHandle) -> Positions:
    progress = msgspec.msgpack.decode(handle.progress, type=TaskProgress)
    return Positions([channel.next_seq for channel in progress.inputs], progress.outputs)
