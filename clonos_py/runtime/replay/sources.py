"""Sources of a replay: they have the partitions that they had in the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from clonos_py.model.operators import Source
from clonos_py.model.plan import PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.snapshots import Manifest
from clonos_py.process.progress import progress_of


def with_sources(plan: PhysicalPlan, make: Callable[[SourcePlan, Vertex], Callable[[], Source]]) -> PhysicalPlan:
    """The plan with sources that other factories make."""

    def vertex(found: Vertex) -> Vertex:
        if found.source is None:
            return found
        return replace(found, source=replace(found.source, factory=make(found.source, found)))

    return replace(plan, vertices=tuple(map(vertex, plan.vertices)))


def patched(source: Source, **attributes: Any) -> Source:
    """The source, with these methods or attributes in place of its own."""
    for name, value in attributes.items():
        setattr(source, name, value)
    return source


def with_recorded_partitions(plan: PhysicalPlan, recorded: Manifest) -> PhysicalPlan:
    """The plan with sources that have as many partitions as when ``recorded`` was written. There may be more by now,
    such as files of a folder, and a task that has one does not do what it did without."""
    counts = {handle.task.vertex: progress_of(handle).partition_count for handle in recorded.tasks}

    def counted(source: SourcePlan, vertex: Vertex) -> Callable[[], Source]:
        count = counts.get(vertex.name, -1)
        return source.factory if count < 0 else partial(_counted, source.factory, count)

    return with_sources(plan, counted)


def _counted(factory: Callable[[], Source], count: int) -> Source:
    source = factory()
    return patched(source, partitions=lambda: min(count, type(source).partitions(source)))
