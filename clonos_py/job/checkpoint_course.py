"""The course of checkpoints: when one is triggered, given up or complete, and who is told so (D7)."""

from __future__ import annotations

from clonos_py.job.checkpoints import Pending
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import ReportKind, WriteManifest
from clonos_py.job.fleet import Role
from clonos_py.model import messages
from clonos_py.model.snapshots import Manifest
from clonos_py.model.times import MAX_TIME


class CheckpointCourse:
    """One checkpoint at a time. Whether one may be triggered now is for the coordinator to know."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context, self._checkpoints = context, context.checkpoints
        self._writing: Manifest | None = None
        self._not_deleted: str | None = None
        self.wanted = False
        """Whether somebody has asked for a checkpoint since the last was triggered; it comes as soon as it can."""

    # ---- time

    def schedule(self) -> None:
        """The job runs: the first interval begins."""
        interval_us = self._context.policy.checkpoint_interval_us
        if interval_us and self._checkpoints.next_us is None:
            self._checkpoints.next_us = self._context.now_us + interval_us

    @property
    def wake_us(self) -> int:
        """When the pending checkpoint has taken too long, or else the next one is due."""
        if self._checkpoints.pending is not None:
            return self._limit_us
        return self._checkpoints.next_us if self._checkpoints.next_us is not None else MAX_TIME

    @property
    def late(self) -> bool:
        """Whether the pending checkpoint has taken too long, or its manifest, which cannot be aborted."""
        return self._checkpoints.pending is not None and self._context.now_us >= self._limit_us

    @property
    def _limit_us(self) -> int:
        pending, policy = self._checkpoints.pending, self._context.policy
        assert pending is not None
        if pending.writing_us is not None:
            return pending.writing_us + policy.manifest_timeout_us
        return pending.triggered_us + policy.checkpoint_timeout_us

    def due(self) -> bool:
        """Whether an interval has ended; the next one begins."""
        next_us = self._checkpoints.next_us
        if next_us is None or next_us > self._context.now_us:
            return False
        self._checkpoints.next_us = self._context.now_us + self._context.policy.checkpoint_interval_us
        return True

    # ---- from trigger to completion

    @property
    def settling(self) -> bool:
        """Whether the manifest is being written: which checkpoint is the last is being decided right now."""
        return self._checkpoints.pending is not None and self._checkpoints.pending.writing_us is not None

    def trigger(self, final: bool) -> None:
        context, self.wanted = self._context, False
        checkpoint = self._checkpoints.trigger(context.now_us, context.clock_us, final)
        context.report(ReportKind.CHECKPOINT_TRIGGERED, checkpoint=checkpoint)
        for process in context.fleet.with_role(Role.ACTIVE):
            if context.plan.by_name[process.task.vertex].source is not None:
                context.send(process, messages.TriggerCheckpoint(checkpoint))

    def abort(self, reason: str) -> None:
        """Gives the pending checkpoint up, if there is one, for all."""
        context, checkpoint = self._context, self._checkpoints.abort()
        if checkpoint is not None:
            context.report(ReportKind.CHECKPOINT_ABORTED, checkpoint=checkpoint, reason=reason)
            for process in context.fleet.with_role(Role.ACTIVE):
                context.send(process, messages.AbortCheckpoint(checkpoint))

    def collect(self, message: messages.Snapshotted) -> None:
        """A task's snapshot is durable; with the last one the manifest is written."""
        if self._context.fleet.processes[message.process].role is not Role.ACTIVE:
            return
        manifest = self._checkpoints.acknowledge(message.handle, self._context.generation, self._context.now_us)
        if manifest is not None:
            self._writing = manifest
            self._context.out.append(WriteManifest(manifest))

    def complete(self, checkpoint: int) -> Pending | None:
        """The manifest is written: tells everybody. None if it was not waited for (any more)."""
        manifest, self._writing = self._writing, None
        if manifest is None or manifest.checkpoint != checkpoint or self._checkpoints.pending is None:
            return None
        context, pending = self._context, self._checkpoints.complete(manifest)
        context.report(
            ReportKind.CHECKPOINT_COMPLETED,
            checkpoint=checkpoint,
            duration_ms=(context.clock_us - pending.clock_us) / 1_000,
            written_bytes=sum(handle.written_bytes for handle in manifest.tasks),
        )
        for process in context.fleet.with_role(Role.ACTIVE):
            context.send(process, messages.Complete(checkpoint))
        for process in context.fleet.with_role(Role.STANDBY):
            if process.address is not None:
                context.prepare(process)
        return pending

    def retired(self, problem: str | None) -> None:
        """Earlier checkpoints have been deleted, or could not be. The same reason is reported once, not with every
        checkpoint."""
        if problem is not None and problem != self._not_deleted:
            self._context.report(ReportKind.DELETION_FAILED, reason=problem)
        self._not_deleted = problem
