"""The completed checkpoint of a job: what it resumes from, what a manifest says, and where each task restarts (D7)."""

from __future__ import annotations

from collections.abc import Iterable

from clonos_py.job.claims import kinds_of, operators_of, same_shape
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, TaskHandle, numbering_of


class CompletedCheckpoint:
    """The newest manifest that is known to be written; None until there is one."""

    def __init__(self, plan: PhysicalPlan, manifest: Manifest | None, code_digest: str, lineage: str) -> None:
        """``lineage``: of the line that begins if there is no manifest to resume."""
        self._plan, self._code_digest = plan, code_digest
        self.manifest: Manifest | None = None
        self._handles: dict[TaskId, TaskHandle] = {}
        """By task; none where the plan has other tasks than the manifest."""
        self._lineage, self._renumberings = lineage, 0
        if manifest is not None:
            self.adopt(manifest)
            self._lineage = manifest.lineage or lineage
            self._renumberings = manifest.renumberings + (not same_shape(manifest, plan))

    def adopt(self, manifest: Manifest) -> None:
        """``manifest`` is written, and the newest."""
        self.manifest = manifest
        self._handles = {handle.task: handle for handle in manifest.tasks} if same_shape(manifest, self._plan) else {}

    def handle(self, task: TaskId) -> TaskHandle | None:
        """The snapshot that is the restart point of a task; None where it starts from nothing, or from several."""
        return self._handles.get(task)

    def epoch(self, task: TaskId) -> int:
        """The epoch that the restart point of a task begins; 0 where it starts from nothing."""
        handle = self._handles.get(task)
        return handle.checkpoint if handle else self.number

    @property
    def number(self) -> int:
        """0: there is none."""
        return self.manifest.checkpoint if self.manifest else 0

    @property
    def numbering(self) -> str:
        """See OperatorContext. The same for a coordinator that takes over: whether it resumes from the checkpoint of
        another parallelism or from the first at this one, it counts the same."""
        return numbering_of(self._lineage, self._renumberings)

    @property
    def code_changed(self) -> bool:
        """Whether it is known to be of other code than that of this run."""
        return self.manifest is not None and self.manifest.of_other_code(self._code_digest)

    def next(
        self, checkpoint: int, generation: int, tasks: Iterable[TaskHandle], earlier: Iterable[TaskHandle] = ()
    ) -> Manifest:
        """The manifest to write for ``checkpoint``: one handle of each task, in the plan's order. ``earlier``: see
        there."""
        return Manifest(
            job=self._plan.job,
            checkpoint=checkpoint,
            generation=generation,
            key_groups=self._plan.key_groups,
            parallelism={v.name: v.parallelism for v in self._plan.vertices},
            tasks=list(tasks),
            operators=operators_of(self._plan),
            code_digest=self._code_digest,
            lineage=self._lineage,
            protocol=self._plan.protocol,
            rollback=self._plan.rollback,
            earlier=list(earlier),
            renumberings=self._renumberings,
            kinds=kinds_of(self._plan),
        )

    def restart(self, task: TaskId) -> Restore:
        """Where a task starts from. At another parallelism, or where operators have come or gone, it gets the snapshots
        of all former instances."""
        manifest = self.manifest
        if manifest is None:
            return Restore(0)
        vertex = self._plan.by_name[task.vertex]
        names = [operator.name for operator in vertex.operators]
        if vertex.source is not None:
            names.append(vertex.source.name)
        if handle := self._handles.get(task):
            operators = {name: [handle.operators[name]] for name in names if name in handle.operators}
            committed = dict(handle.committables)
            return Restore(
                handle.checkpoint, operators, handle.progress, committed, frames=handle.frames, logs=handle.logs
            )
        operators = {name: parts for name in names if (parts := manifest.parts(name))}
        committables: dict[str, list[bytes]] = {}
        if task.index == 0:
            for handle in manifest.tasks:
                for name, named in handle.committables.items():
                    if name in names:
                        committables.setdefault(name, []).extend(named)
        return Restore(manifest.checkpoint, operators, None, committables)
