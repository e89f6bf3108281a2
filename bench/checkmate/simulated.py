"""Makes runs of the evaluation on a simulated cluster in virtual time, with more workers than processors here (E12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clonos_py.bench.checkmate.metrics import message_overhead
from clonos_py.bench.cluster.costs import BLOCK_EVENTS, Costs
from clonos_py.bench.cluster.run import CostedCluster, run
from clonos_py.dsl.job import Job
from clonos_py.model.operators import Source
from clonos_py.model.plan import PhysicalPlan, SourcePlan
from clonos_py.observe.events import Listener
from clonos_py.plan.physical import plan
from clonos_py.settings.definitions import Settings


@dataclass(frozen=True)
class ClusterTerms:
    """The size of the simulated cluster. ``machines``: None means one for each worker, that is, one for all tasks with
    the same index. ``rows_per_row``: how many real rows each simulated row stands for, so that high rates can be
    simulated. Quantities in rows or bytes are divided by it.
    """

    machines: int | None = None
    processors: int = 1
    rows_per_row: int = 1

    def run(self, job: Job, settings: Settings, listener: Listener) -> PhysicalPlan:
        """Runs a job on the simulated cluster. Raises the ClonosError that ended the job."""
        budget = self._weighed(settings.in_flight_budget_bytes)
        physical = self._scaled(plan(job, settings))
        cluster = CostedCluster(
            self.machines or settings.parallelism, self.processors, Costs(rows_per_row=self.rows_per_row)
        )
        return run(physical, replace(settings, in_flight_budget_bytes=budget), listener, cluster).plan

    def _weighed(self, rows: int) -> int:
        """Divides a number of rows, or of bytes, by ``rows_per_row``. The result is at least 1, but 0 stays 0."""
        return max(rows // self.rows_per_row, min(rows, 1))

    def _scaled(self, physical: PhysicalPlan) -> PhysicalPlan:
        """The plan with the sizes of frames and reads divided by ``rows_per_row``."""
        edges = tuple(
            replace(edge, frame_rows=self._weighed(edge.frame_rows), merge_rows=self._weighed(edge.merge_rows))
            for edge in physical.edges
        )
        vertices = tuple(
            vertex if vertex.source is None else replace(vertex, source=self._read_in_parts(vertex.source))
            for vertex in physical.vertices
        )
        return replace(physical, vertices=vertices, edges=edges)

    def _read_in_parts(self, source: SourcePlan) -> SourcePlan:
        most = self._weighed(BLOCK_EVENTS)
        return replace(
            source, factory=partial(_limited, source.factory, most), merge_rows=self._weighed(source.merge_rows)
        )

    def weighed(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics of ``metrics.measured``, converted from simulated rows to the rows that they stand for."""
        rate, sent = metrics["throughput_events_per_s"], metrics["bytes"]
        weighed = {**sent, "rows": sent["rows"] * self.rows_per_row}
        return {
            **metrics,
            "throughput_events_per_s": None if rate is None else rate * self.rows_per_row,
            "bytes": weighed,
            "overhead": message_overhead(weighed),
        }


def _limited(factory: Callable[[], Source], rows: int) -> Source:
    source = factory()
    source.limit(rows)
    return source
