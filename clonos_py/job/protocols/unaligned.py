"""Unaligned checkpoints on the coordinator's side: all tasks are called at once (E4)."""

from __future__ import annotations

from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints


class UnalignedCheckpoints(CoordinatedCheckpoints):
    """No task waits for barriers to pass through the queues. So a checkpoint takes only as long as the slowest task
    needs for its current event, however many frames are queued before it."""

    def called(self) -> list[TaskProcess]:
        return self._context.fleet.with_role(Role.ACTIVE)
