"""A matrix of runs: queries x parallelism x sharing depth x guarantee. Each cell is a run with its own report.

A folder holds ``matrix.jsonl`` with the report of each cell that was run (``finished_runs.py``), and ``summary.md``.
Starting the same matrix again runs the cells that are missing or have failed. More queries or values may be added.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from clonos_py.evaluation.finished_runs import FinishedRuns, LineKind
from clonos_py.evaluation.metrics import slowest_ms
from clonos_py.evaluation.page import markdown_table
from clonos_py.observe.definitions import overhead

RUN = "run"
_FILE = "matrix.jsonl"
_DIMENSIONS = ("query", "parallelism", "sharing_depth", "guarantee")
HEADINGS = (
    "query", "parallelism", "depth", "guarantee", "events/s", "p50 ms", "p99 ms", "checkpoint ms", "overhead",
    "restart ms", "recovery ms", "ended",
)  # fmt: skip


@dataclass(frozen=True)
class MatrixCell:
    """One combination, in the syntax of the settings."""

    query: str
    parallelism: str
    sharing_depth: str
    guarantee: str

    @property
    def name(self) -> str:
        return f"{self.query}-parallelism-{self.parallelism}-depth-{self.sharing_depth}-{self.guarantee}"

    @property
    def settings(self) -> dict[str, str]:
        return {key: value for key, value in asdict(self).items() if key != "query"}


def cells(
    queries: Sequence[str], parallelisms: Sequence[str], depths: Sequence[str], guarantees: Sequence[str]
) -> list[MatrixCell]:
    """All combinations, grouped by query."""
    return [MatrixCell(*values) for values in itertools.product(queries, parallelisms, depths, guarantees)]


def results(folder: Path) -> FinishedRuns:
    """The runs that the folder holds. Raises SettingError if it holds something else under the name of their file."""
    return FinishedRuns(folder / _FILE, {RUN: LineKind(_DIMENSIONS, "report")}, "a matrix", folder)


def summary(runs: FinishedRuns, cells: Sequence[MatrixCell], folder: Path) -> list[tuple[str, ...]]:
    """A row per cell that was run, under ``HEADINGS``; also written as ``summary.md``."""
    rows = [row(cell, found) for cell in cells if (found := runs.of(RUN, asdict(cell))) is not None]
    (folder / "summary.md").write_text(markdown_table(HEADINGS, rows), encoding="utf-8")
    return rows


def row(cell: MatrixCell, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The summary row of a cell."""
    dimensions = astuple(cell)
    if "error" in found:
        return *dimensions, *[""] * (len(HEADINGS) - len(dimensions) - 1), str(found["error"])
    report, sent = found["report"], found["report"]["bytes"]
    failures, all_bytes = report["failures"], overhead(sent["data"], sent["determinants"])
    return (
        *dimensions,
        f"{found['events_per_s']:,.0f}",
        _ms(report["latency_steady_ms"]["p50"]),
        _ms(report["latency_steady_ms"]["p99"]),
        _ms(report["checkpoints"]["median_ms"]),
        "" if all_bytes is None else f"{all_bytes:.3f}",
        _ms(slowest_ms(failures, "restart_ms")),
        _ms(slowest_ms(failures, "latency_normal_ms")),
        "done" if not report["rollbacks"] else f"{report['rollbacks']} rollbacks",
    )


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
