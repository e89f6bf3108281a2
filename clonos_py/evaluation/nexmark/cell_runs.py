"""Measured runs of one query: as fast as possible, at a fixed rate, or a search for the highest sustained rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.failure_plan import drawn
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.evaluation.nexmark.steady import measure
from clonos_py.evaluation.nexmark.sustained import Search, ThroughputSearch, search_throughput
from clonos_py.plan.physical import plan
from clonos_py.settings.definitions import Settings
from clonos_py.settings.kinds import KILLS


class Mode(Enum):
    THROUGHPUT = "throughput"
    RATE = "rate"
    SUSTAINED = "mst"


@dataclass(frozen=True)
class CellWorkload:
    """The workload of each run of a matrix. Without ``rate``, it runs as fast as possible, for ``seconds`` of steady
    state or over ``events`` events."""

    mode: Mode
    seconds: float = 20.0
    events: int | None = None
    rate: int | None = None
    failures: tuple[str, ...] = ()


def with_failures(orders: Sequence[str], query: str, settings: Settings) -> Settings:
    """The settings with the kills of a failure plan added. Random tasks are drawn from those of the query."""
    tasks = plan(build(query, QueryRun(query, 1_000).source(settings), BlackholeSink()), settings).tasks
    return replace(settings, kills=(*settings.kills, *KILLS.parse(drawn(orders, tasks, settings.seed))))


def at_rate(query: str, rate: float, seconds: float, settings: Settings) -> dict[str, Any]:
    """The report of a run at ``rate`` events per second."""
    return run_query(QueryRun(query, max(round(rate * seconds), 1), rate=rate), settings)


def sustained(
    query: str,
    parameters: ThroughputSearch,
    settings: Settings,
    on_trial: Callable[[Search], None] = lambda found: None,
) -> tuple[Search, Mapping[str, Any]]:
    """Searches for the maximum sustainable throughput of a query (see ``search_throughput``)."""
    return search_throughput(
        parameters,
        lambda: measure(query, 5, settings)["throughput"]["steady_events_per_s"],
        lambda rate: at_rate(query, rate, parameters.seconds, settings),
        on_trial,
    )


def run_cell(query: str, workload: CellWorkload, settings: Settings) -> dict[str, Any]:
    """The result of a cell: ``events_per_s`` and its report. Raises the ClonosError that ended the run."""
    settings = with_failures(workload.failures, query, settings)
    if workload.mode is Mode.SUSTAINED:
        found, run_report = sustained(query, ThroughputSearch(workload.seconds), settings)
        return {"events_per_s": found.low, "trials": [asdict(trial) for trial in found.trials], "report": run_report}
    if workload.mode is Mode.RATE and workload.rate is not None:
        run_report = at_rate(query, workload.rate, workload.seconds, settings)
    elif workload.events is not None:
        run_report = run_query(QueryRun(query, workload.events), settings)
    else:
        run_report = measure(query, workload.seconds, settings)
    return {"events_per_s": run_report["throughput"]["steady_events_per_s"], "report": run_report}
