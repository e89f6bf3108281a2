"""Runs a query long enough for a steady state."""

from __future__ import annotations

from typing import Any

from clonos_py.evaluation.metrics import WARM_UP_US
from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.settings.definitions import Settings

_PROBE_EVENTS = 10_000_000
_LONGER = 3
_ENOUGH = 0.9


def measure(query: str, seconds: float, settings: Settings, sink: SinkKind = SinkKind.BLACKHOLE) -> dict[str, Any]:
    """The report of a run with a steady state of about ``seconds``. Shorter runs determine the number of events that
    this takes; several are needed, as a very short run is seldom as fast."""
    report = run_query(QueryRun(query, _PROBE_EVENTS, sink=sink), settings)
    for _ in range(_LONGER):
        found = report["throughput"]
        if found["steady_seconds"] >= seconds * _ENOUGH:
            break
        events = max(int(found["steady_events_per_s"] * (seconds + WARM_UP_US / 1e6)), _PROBE_EVENTS)
        report = run_query(QueryRun(query, events, sink=sink), settings)
    return report
