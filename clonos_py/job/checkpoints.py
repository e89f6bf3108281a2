"""The coordinated checkpoint from the coordinator's side: trigger, collect, complete or abort (D7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from clonos_py.job.claims import kinds_of, operators_of, same_shape
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle

_UNHEARD_MAX = 2
"""So many checkpoints that a lost coordinator triggered may nobody alive have heard of: one is under way at a time, and
whoever hears of the next has heard of the one before."""


@dataclass
class Pending:
    """A checkpoint under way."""

    checkpoint: int
    triggered_us: int
    clock_us: int
    """When it was triggered, by the driver's clock."""
    final: bool
    handles: dict[TaskId, TaskHandle] = field(default_factory=dict)
    writing_us: int | None = None
    """Since when the manifest is being written: from then on it may be complete."""


class Checkpoints:
    """One checkpoint at a time; numbers only grow, those of aborted ones are not used again."""

    def __init__(self, plan: PhysicalPlan, manifest: Manifest | None, code_digest: str, lineage: str) -> None:
        """``lineage``: of the line that begins if there is no manifest to resume."""
        self._plan, self._code_digest = plan, code_digest
        self.manifest = manifest
        self._lineage, self._renumberings = lineage, 0
        if manifest is not None:
            self._lineage = manifest.lineage or lineage
            self._renumberings = manifest.renumberings + (not same_shape(manifest, plan))
        self.pending: Pending | None = None
        self.aborted: list[int] = []
        """Those triggered since the last completed checkpoint and given up."""
        self._last = manifest.checkpoint if manifest else 0
        self.next_us: int | None = None

    @property
    def numbering(self) -> str:
        """See OperatorContext. The same for a coordinator that takes over: whether it resumes from the checkpoint of
        another parallelism or from the first at this one, it counts the same."""
        return f"{self._lineage}-{self._renumberings}"

    @property
    def completed(self) -> int:
        return self.manifest.checkpoint if self.manifest else 0

    @property
    def code_changed(self) -> bool:
        """Whether the last completed checkpoint is known to be of other code than that of this run."""
        written_by = self.manifest.code_digest if self.manifest else ""
        return bool(written_by and self._code_digest) and written_by != self._code_digest

    def trigger(self, now_us: int, clock_us: int, final: bool) -> int:
        assert self.pending is None
        self._last += 1
        self.pending = Pending(self._last, now_us, clock_us, final)
        return self._last

    def acknowledge(self, handle: TaskHandle, generation: int, now_us: int) -> Manifest | None:
        """A task's snapshot is durable. Gives the manifest to write once all are; ignores other checkpoints'."""
        pending = self.pending
        if pending is None or handle.checkpoint != pending.checkpoint or pending.writing_us is not None:
            return None
        pending.handles[handle.task] = handle
        if len(pending.handles) < len(self._plan.tasks):
            return None
        pending.writing_us = now_us
        return self._manifest(pending, generation)

    def _manifest(self, pending: Pending, generation: int) -> Manifest:
        return Manifest(
            job=self._plan.job,
            checkpoint=pending.checkpoint,
            generation=generation,
            key_groups=self._plan.key_groups,
            parallelism={v.name: v.parallelism for v in self._plan.vertices},
            tasks=[pending.handles[t] for t in self._plan.tasks],
            operators=operators_of(self._plan),
            code_digest=self._code_digest,
            lineage=self._lineage,
            renumberings=self._renumberings,
            kinds=kinds_of(self._plan),
        )

    def complete(self, manifest: Manifest) -> Pending:
        pending = self.pending
        assert pending is not None
        assert pending.checkpoint == manifest.checkpoint
        self.manifest, self.pending, self.aborted = manifest, None, []
        return pending

    def resume(self, heard_of: int) -> None:
        """Goes on after a coordinator that was lost: whatever it triggered beyond the last completed is void.
        ``heard_of``: the highest number that any process knows."""
        self._last = max(heard_of, self.completed) + _UNHEARD_MAX
        self.aborted = list(range(self.completed + 1, self._last + 1))

    def heard_of(self, checkpoint: int) -> None:
        """Logs that are to be replayed speak of this one: unless it is known here, an earlier run has triggered it, and
        it is void as all before it since the last completed."""
        if checkpoint > self._last:
            self.aborted += range(self._last + 1, checkpoint + 1)
            self._last = checkpoint

    def abort(self) -> int | None:
        """Gives the pending checkpoint up; its number, None if there is none."""
        if self.pending is None:
            return None
        checkpoint = self.pending.checkpoint
        self.aborted.append(checkpoint)
        self.pending = None
        return checkpoint
