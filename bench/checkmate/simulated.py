"""Runs of the evaluation on a simulated cluster, in virtual time: more workers than there are processors here (E12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clonos_py.dsl.job import Job
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.costed import CostedCluster, run
from clonos_py.runtime.sim.costs import Costs
from clonos_py.settings.definitions import Settings


@dataclass(frozen=True)
class ClusterTerms:
    """``machines`` None: one for each worker, that is, for the tasks of one index. ``rows_per_row``: each simulated row
    stands for so many, so that high rates can be simulated; sizes that are counted in rows or bytes are divided by it.
    """

    machines: int | None = None
    processors: int = 1
    rows_per_row: int = 1

    def run(self, job: Job, settings: Settings, listener: Listener) -> PhysicalPlan:
        """Raises the ClonosError that ended the job."""
        scaled = replace(
            settings,
            frame_rows=max(settings.frame_rows // self.rows_per_row, 1),
            in_flight_budget_bytes=max(settings.in_flight_budget_bytes // self.rows_per_row, 1),
        )
        physical = plan(job, scaled)
        cluster = CostedCluster(
            self.machines or settings.parallelism, self.processors, Costs(rows_per_row=self.rows_per_row)
        )
        return run(physical, scaled, listener, cluster).plan

    def weighed(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What ``metrics.measured`` has read off a run, of the rows that the simulated ones stand for."""
        rate, sent = metrics["throughput_events_per_s"], metrics["bytes"]
        weighed = {**sent, "rows": sent["rows"] * self.rows_per_row}
        return {
            **metrics,
            "throughput_events_per_s": None if rate is None else rate * self.rows_per_row,
            "bytes": weighed,
            "overhead": sum(weighed.values()) / weighed["rows"] if weighed["rows"] else None,
        }
