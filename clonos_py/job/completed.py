"""The completed checkpoint: snapshots to resume from, the next manifest, the restart point of each task (D7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from clonos_py.job.counted_before import counted_before
from clonos_py.job.reopening import ended_tasks, ended_vertices, reopened
from clonos_py.job.state_mapping import at_the_end, definitions_of, kinds_of, operators_of, same_shape
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import KeptEstimates, Manifest, Recorded, TaskHandle, numbering_of


class CompletedCheckpoint:
    """The newest manifest that is known to be written, and the restart points that follow from it."""

    def __init__(self, plan: PhysicalPlan, manifest: Manifest | None, code_digest: str, lineage: str) -> None:
        """``lineage``: the name of this run, and of the lineage that begins if there is no manifest to resume."""
        self._plan, self._code_digest = plan, code_digest
        self.manifest: Manifest | None = None
        self._handles: dict[TaskId, TaskHandle] = {}
        """By task; empty if the plan's tasks differ from the manifest's, or if these had finished in an earlier run.
        Sources may have more rows now, also those that had ended before others (``reopening.py``)."""
        self.run = self._lineage = lineage
        """The name of this run."""
        self._renumberings, self._closed = 0, frozenset[str]()
        self._decided = manifest.decided if manifest is not None else []
        self.stay_ended: tuple[str, ...] = ()
        """Sources that had ended before others, in all or some of their tasks, and are not read again by these in this
        run."""
        self._recorded: Recorded | None = None
        if plan.recorded:
            settings = dict(plan.written_settings)
            self._recorded = Recorded(plan.record.time_us, settings, record_bytes=plan.record.size_bytes)
        self.estimates: Callable[[], KeptEstimates | None] = lambda: None
        """What the job has measured by now to find its checkpoint interval: each manifest holds it."""
        self.kept = manifest.estimates if manifest is not None and manifest.run == lineage else None
        """What an earlier coordinator of this run had measured."""
        if manifest is not None:
            self.adopt(manifest)
            if self._recorded is not None and manifest.recorded is not None:
                self._recorded = msgspec.structs.replace(self._recorded, resumed=_resumed(manifest, lineage))
            begins_again = manifest.run != lineage and at_the_end(manifest)
            closed = set(manifest.closed)
            if begins_again:
                self._handles = {}
                closed = {name for task in manifest.tasks for name in task.operators}
            elif manifest.run != lineage:
                ended = ended_tasks(manifest)
                whole = ended_vertices(manifest, ended)
                closed |= {name for name, vertex in manifest.operators.items() if vertex in whole}
                if self._handles:
                    opened = reopened(manifest, plan, ended)
                    self._handles |= opened
                    shut = {task.vertex for task in ended if task not in opened}
                    sources = (vertex.source for vertex in plan.vertices if vertex.name in shut)
                    self.stay_ended = tuple(source.name for source in sources if source)
            self._lineage = manifest.lineage or lineage
            self._renumberings = manifest.renumberings + (begins_again or not same_shape(manifest, plan))
            self._closed = frozenset(closed)

    def adopt(self, manifest: Manifest) -> None:
        """``manifest`` is written, and is the newest."""
        self.manifest = manifest
        self._handles = {handle.task: handle for handle in manifest.tasks} if same_shape(manifest, self._plan) else {}

    def handle(self, task: TaskId) -> TaskHandle | None:
        """The snapshot that is a task's restart point. None if the task starts empty, or from several snapshots."""
        return self._handles.get(task)

    def epoch(self, task: TaskId) -> int:
        """The epoch that begins with the restart point of a task; 0 if the task starts empty."""
        handle = self._handles.get(task)
        return handle.checkpoint if handle else self.number

    @property
    def number(self) -> int:
        """The number of the newest completed checkpoint; 0: there is none."""
        return self.manifest.checkpoint if self.manifest else 0

    @property
    def numbering(self) -> str:
        """The prefix of idempotency keys, see OperatorContext. A coordinator that takes over computes the same one,
        whether it resumes from a checkpoint at another parallelism or from the first one at this parallelism."""
        return numbering_of(self._lineage, self._renumberings)

    @property
    def code_changed(self) -> bool:
        """Whether the checkpoint is known to come from other code than this run's."""
        return self.manifest is not None and self.manifest.of_other_code(self._code_digest)

    def next(
        self, checkpoint: int, generation: int, tasks: Iterable[TaskHandle], earlier: Iterable[TaskHandle] = ()
    ) -> Manifest:
        """The manifest for ``checkpoint``: one handle per task, in the plan's order. ``earlier``: see ``Manifest``."""
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
            protocol=self._plan.protocol.name,
            rollback=self._plan.rollback,
            earlier=list(earlier),
            renumberings=self._renumberings,
            kinds=kinds_of(self._plan),
            run=self.run,
            closed=sorted(self._closed),
            decided=self._decided,
            definitions=definitions_of(self._plan),
            estimates=self.estimates(),
            recorded=self._recorded and msgspec.structs.replace(self._recorded, first=self.manifest is None),
        )

    def interval(self, generation: int) -> Manifest | None:
        """What the record says of the time since the last checkpoint (``RecordTail``); None: there is no record."""
        return self.next(self.number, generation, ()) if self._recorded is not None else None

    def restart(self, task: TaskId) -> Restore:
        """The restart point of a task. At another parallelism, or if operators were added or removed, the task gets the
        snapshots of all former instances, of which it reads the chunks with key groups of its own, and a share of
        what they have counted."""
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
                handle.checkpoint, operators, handle.progress, committed, frames=handle.frames, logs=handle.logs,
                closed=self._closed,
            )  # fmt: skip
        groups, sinks = self._plan.groups(task), {operator.name for operator in vertex.operators if operator.sink}
        operators = {
            name: parts if name in sinks else [part.within(groups) for part in parts]
            for name in names
            if (parts := manifest.parts(name))
        }
        committables: dict[str, list[bytes]] = {}
        if task.index == 0:
            for handle in manifest.tasks:
                for name, named in handle.committables.items():
                    if name in names:
                        committables.setdefault(name, []).extend(named)
        counts, metrics = counted_before(manifest, names, task, vertex.parallelism)
        return Restore(
            manifest.checkpoint, operators, None, committables, closed=self._closed, counts=counts, metrics=metrics
        )


def _resumed(manifest: Manifest, run: str) -> tuple[int, int, int] | None:
    """See ``Recorded``. A coordinator that takes over from another one of its run goes on with what that one said."""
    assert manifest.recorded is not None
    if manifest.run == run:
        return manifest.recorded.resumed
    return manifest.checkpoint, manifest.generation, manifest.recorded.completed_ms
