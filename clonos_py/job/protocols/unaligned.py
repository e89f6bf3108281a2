"""Unaligned checkpoints on the coordinator's side: all tasks are called at once (E4)."""

from __future__ import annotations

from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints


class UnalignedCheckpoints(CoordinatedCheckpoints):
    """No task waits for barriers to come through the queues: a checkpoint takes as long as the slowest task is at
    work on one event, however many frames wait before it."""

    def called(self) -> list[TaskProcess]:
        return self._context.fleet.with_role(Role.ACTIVE)
