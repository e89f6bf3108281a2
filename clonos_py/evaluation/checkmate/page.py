"""The tables and figures 7 to 13 of CheckMate as one HTML page. Pure, except that it reads the style sheet.

Figures 7, 8 and 11 are plotted over the number of workers, 9 and 10 over time, 12 and 13 over the share of hot events.
There is a plot for each query, and a line for each protocol and recovery. Points are medians over the repetitions of a
run.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from clonos_py.evaluation.checkmate.dimensions import LOADS_SKEWED, NONE, QUERIES, ROLLBACK
from clonos_py.evaluation.checkmate.tables import (
    Line,
    MedianTable,
    Metrics,
    Repetitions,
    TableRow,
    Value,
    latency_before,
    mean_checkpointing,
    of_failure,
    tables,
)
from clonos_py.evaluation.page import card, document, legend, table
from clonos_py.evaluation.plots import Plot, Point, linear, logarithmic
from clonos_py.settings.protocols import COMPARED_NAMES

Lines = Mapping[TableRow, Sequence[Point]]
"""The points of each line. ``parallelism`` of the row is 0: the points or the title give the number of workers."""

_WIDTH, _HEIGHT = 500, 180
_WORKERS, _SECONDS, _PERCENT = " workers", " s", "%"


@dataclass(frozen=True)
class Figure:
    """One plot. ``unit``: that of the horizontal axis; ``marked``: the time at which a task was killed."""

    title: str
    unit: str
    lines: Lines
    log: bool = True
    marked: float | None = None

    def svg(self) -> str:
        points = [point for line in self.lines.values() for point in line]
        values = [value for _, value in points]
        axis = logarithmic(values, _HEIGHT) if self.log else linear(max(values), _HEIGHT)
        plot = Plot(self.title, max(x for x, _ in points) * 1.05, axis, _number, _WIDTH, unit=self.unit)
        for row, line in self.lines.items():
            plot.line(line, _style(row))
        if self.marked is not None:
            plot.mark(self.marked, "fail")
        return plot.svg()


def page(searches: Iterable[Line], runs: Iterable[Line], terms: Mapping[str, Any]) -> str:
    """The whole HTML document."""
    searches, runs = list(searches), list(runs)
    meta = ", ".join(f"{name} {value}" for name, value in terms.items() if value not in (None, {}))
    content = (
        '<div class="pair">',
        *(_plot_card(figure) for figure in figures(searches, runs)),
        "</div>",
        *(_table_card(found) for found in tables(searches, runs)),
    )
    return document("CheckMate's evaluation", "CheckMate's evaluation", meta, content)


def figures(searches: Iterable[Line], runs: Iterable[Line]) -> list[Figure]:
    """All figures that have at least one point, in the order of their numbers."""
    groups = Repetitions(runs)
    found = (
        *_throughputs(searches),
        *_by_workers("Figure 8: average checkpointing time, ms", groups, mean_checkpointing),
        *_over_time("Figure 9: median latency, ms", groups, "p50"),
        *_over_time("Figure 10: 99th percentile of latency, ms", groups, "p99"),
        *_by_workers("Figure 11: restart time, ms", groups, of_failure("restart_ms")),
        *_by_skew("Figure 12: median latency, ms", groups, latency_before("p50"), LOADS_SKEWED),
        *_by_skew("Figure 12: average checkpointing time, ms", groups, mean_checkpointing, LOADS_SKEWED),
        *_by_skew("Figure 13: restart time, ms", groups, of_failure("restart_ms"), LOADS_SKEWED[:1]),
    )
    return [figure for figure in found if any(figure.lines.values())]


# ---- lines


def _throughputs(searches: Iterable[Line]) -> Iterator[Figure]:
    found: dict[str, dict[TableRow, list[Point]]] = {}
    for line in searches:
        point = line["parallelism"], float(line["events_per_s"])
        found.setdefault(line["query"], {}).setdefault(_name(line["protocol"], line["recovery"]), []).append(point)
    for query in QUERIES:
        lines = {name: sorted(points) for name, points in found.get(query, {}).items()}
        title = f"Figure 7: maximum sustainable throughput, events/s: {query}"
        yield Figure(title, _WORKERS, lines, log=False)


def _by_workers(title: str, groups: Repetitions, value: Value) -> Iterator[Figure]:
    for query in groups.queries():
        lines: dict[TableRow, list[Point]] = {}
        for row in groups.ranks():
            points = [(float(row.parallelism), y) for y in _median(groups.of(query, row), value)]
            lines.setdefault(_name(row.protocol, row.recovery), []).extend(points)
        yield Figure(f"{title}: {query}", _WORKERS, lines)


def _over_time(title: str, groups: Repetitions, percentile: str) -> Iterator[Figure]:
    """Plots over seconds since the warm-up, one for each query and number of workers."""
    for query in groups.queries():
        for workers in sorted({row.parallelism for row in groups.ranks()}):
            runs = {row: groups.of(query, row) for row in groups.ranks() if row.parallelism == workers}
            lines = {
                _name(row.protocol, row.recovery): _latency_points(found, percentile) for row, found in runs.items()
            }
            killed = _median([m for found in runs.values() for m in found], of_failure("at_s"))
            yield Figure(f"{title}: {query}, {workers} workers", _SECONDS, lines, marked=killed[0] if killed else None)


def _latency_points(runs: Sequence[Metrics], percentile: str) -> list[Point]:
    found: dict[int, list[float]] = {}
    for metrics in runs:
        for second in metrics["latency_ms_per_second"]:
            found.setdefault(second["at_s"], []).append(second[percentile])
    return [(float(at_s), statistics.median(values)) for at_s, values in sorted(found.items())]


def _by_skew(title: str, groups: Repetitions, value: Value, loads: Sequence[int]) -> Iterator[Figure]:
    """Plots over skew, one for each query, number of workers, load and partitioning. Includes runs at a given rate."""
    rows, skews = groups.ranks(skewed=True), groups.skews()
    workers = sorted({row.parallelism for row in rows})
    given = [load for load in groups.loads() if load is None or load in loads]
    ways = sorted({skew.keys for skew in skews if skew.percent})
    for query, width, load, keys in itertools.product(groups.queries(), workers, given, ways):
        lines = {
            _name(row.protocol, row.recovery): [
                (float(skew.percent), y)
                for skew in skews
                if keys == skew.keys or not skew.percent
                for y in _median(groups.of(query, row, skew, load), value)
            ]
            for row in rows
            if row.parallelism == width
        }
        at = "" if load is None else f", {load}% load"
        yield Figure(f"{title} under skew: {query}, {width} workers{at}, keys by {keys}", _PERCENT, lines)


def _median(metrics: Sequence[Metrics], value: Value) -> list[float]:
    """The median as a list of one number, or an empty list if no run has the value."""
    found = [number for each in metrics if (number := value(each)) is not None]
    return [statistics.median(found)] if found else []


def _name(protocol: str, recovery: str) -> TableRow:
    """The identity of a line in a plot."""
    return TableRow(0, protocol, recovery)


# ---- elements


def _style(row: TableRow) -> str:
    hue = 5 if row.protocol == NONE else COMPARED_NAMES.index(row.protocol)
    return f"hue{hue}" + (" dashed" if row.recovery == ROLLBACK else "")


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"


def _plot_card(figure: Figure) -> str:
    names = [(_style(row), _text(row)) for row, points in figure.lines.items() if points]
    return card(figure.title, legend(names), figure.svg())


def _text(row: TableRow) -> str:
    _, protocol, recovery = row.cells
    return protocol if recovery == NONE else f"{protocol}, {recovery}"


def _table_card(found: MedianTable) -> str:
    statement = [f"<p>The paper: {escape(found.statement)}.</p>"] if found.statement else []
    return card(found.title, *statement, table(found.headings, found.rows))
