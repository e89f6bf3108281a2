"""The file of finished runs of CheckMate's evaluation (``finished_runs.py``). Its lines:

    {"kind": "mst", QUERY, "events_per_s": ..., "trials": [...]}             a maximum sustainable throughput
    {"kind": "run", QUERY, "skew": 0, "load": 80, "run": 1, "keys": "hash", "rate": ..., "metrics": ..., ...}

QUERY stands for ``query``, ``protocol``, ``recovery`` and ``parallelism``. ``load`` is null if the rate was given.
``rate`` is null if events were read as fast as possible. ``metrics`` is the result of ``metrics.measured``.
"""

from __future__ import annotations

from pathlib import Path

from clonos_py.evaluation.finished_runs import FinishedRuns, LineKind

SEARCH, RUN = "mst", "run"
_QUERY = ("query", "protocol", "recovery", "parallelism")
_KINDS = {
    SEARCH: LineKind(_QUERY, "events_per_s"),
    RUN: LineKind((*_QUERY, "skew", "load", "run", "keys"), "metrics"),
}


def results(path: Path) -> FinishedRuns:
    """Raises SettingError for a file that is not a results file, or is damaged before its last line."""
    return FinishedRuns(path, _KINDS, "CheckMate results")
