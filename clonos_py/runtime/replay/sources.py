"""Sources of a replay: they have the partitions that they had in the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from clonos_py.model.operators import Source
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.snapshots import Manifest
from clonos_py.process.progress import progress_of

_PARTITIONS = "partitions"


def with_recorded_partitions(plan: PhysicalPlan, recorded: Manifest) -> PhysicalPlan:
    """The plan with sources that have as many partitions as when ``recorded`` was written. There may be more by now,
    such as files of a folder, and a task that has one does not do what it did without."""
    counts = {handle.task.vertex: progress_of(handle).partition_count for handle in recorded.tasks}
    return replace(plan, vertices=tuple(_counted(vertex, counts.get(vertex.name, -1)) for vertex in plan.vertices))


def _counted(vertex: Vertex, count: int) -> Vertex:
    if vertex.source is None or count < 0:
        return vertex
    return replace(vertex, source=replace(vertex.source, factory=partial(_opened, vertex.source.factory, count)))


def _opened(factory: Callable[[], Source], count: int) -> Source:
    source = factory()
    setattr(source, _PARTITIONS, lambda: min(count, type(source).partitions(source)))
    return source
