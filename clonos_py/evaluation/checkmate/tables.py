"""CheckMate's tables, and its figures as tables: medians over a run's repetitions, beside the paper's values. Pure.

A median over only some of the runs is marked: ``85 (3 of 5)`` if two runs have no such value, and a dash if no run has
one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from clonos_py.evaluation.checkmate import paper
from clonos_py.evaluation.checkmate.dimensions import BY_HASH, CYCLE, KEYED, LOADS_SKEWED, NONE, QUERIES, ROLLBACK
from clonos_py.evaluation.page import markdown_table
from clonos_py.settings.protocols import COMPARED_NAMES

Line = Mapping[str, Any]
Metrics = Mapping[str, Any]
Value = Callable[[Metrics], float | None]

ABSENT = "–"
_HEADINGS = ("workers", "protocol", "recovery")


class TableRow(NamedTuple):
    """The row of a table. ``place`` is its sort key."""

    parallelism: int
    protocol: str
    recovery: str

    @property
    def cells(self) -> tuple[str, str, str]:
        label = paper.LABELS.get(self.protocol)
        protocol = self.protocol if label is None else f"{self.protocol} ({label})"
        return f"{self.parallelism}", "no checkpoints" if self.recovery == NONE else protocol, self.recovery

    @property
    def place(self) -> tuple[int, int, str]:
        order = (NONE, *COMPARED_NAMES)
        return self.parallelism, order.index(self.protocol), self.recovery


class Skew(NamedTuple):
    """The percentage of hot events, and how rows are partitioned."""

    percent: int = 0
    keys: str = BY_HASH


_NO_SKEW = Skew()


class MedianTable(NamedTuple):
    """A table of medians. ``statement``: the paper's statement about it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    statement: str = ""


def markdown(tables: Iterable[MedianTable]) -> str:
    return "\n".join(chain.from_iterable(map(_markdown, tables))) or "there are no finished runs yet"


def _markdown(table: MedianTable) -> Iterator[str]:
    yield f"### {table.title}\n"
    yield markdown_table(table.headings, table.rows).rstrip("\n")
    if table.statement:
        yield f"\nThe paper: {table.statement}."
    yield ""


def tables(searches: Iterable[Line], runs: Iterable[Line]) -> list[MedianTable]:
    """All tables that have data."""
    groups = Repetitions(runs)
    return [
        *_searched(searches),
        *_measured(groups),
        *_overhead(groups),
        *_by_query("Figure 8: average checkpointing time, ms", groups, mean_checkpointing, "8"),
        *_by_query("Figure 9: median latency until the failure, ms", groups, latency_before("p50"), "9"),
        *_by_query("Figure 10: 99th percentile of latency until the failure, ms", groups, latency_before("p99")),
        *_by_query("Figure 11: restart time, ms", groups, of_failure("restart_ms"), "11"),
        *_by_query("Recovery time, ms", groups, of_failure("recovery_ms")),
        *_by_query("Detection time, ms, no part of the restart", groups, of_failure("detected_ms")),
        *_invalid(groups),
        *_cyclic(groups),
        *_skewed("Figure 12: median latency under skew, ms", groups, latency_before("p50"), LOADS_SKEWED, "12"),
        *_skewed("Figure 12: average checkpointing time under skew, ms", groups, mean_checkpointing, LOADS_SKEWED),
        *_skewed("Figure 13: restart time under skew, ms", groups, of_failure("restart_ms"), LOADS_SKEWED[:1], "13"),
    ]


# ---- medians


class Repetitions:
    """Groups runs that differ only in their repetition."""

    def __init__(self, runs: Iterable[Line]) -> None:
        self._metrics: dict[tuple[str, TableRow, Skew, int | None], list[Metrics]] = {}
        for line in runs:
            rank = TableRow(line["parallelism"], line["protocol"], line["recovery"])
            key = line["query"], rank, Skew(line["skew"], line["keys"]), line["load"]
            self._metrics.setdefault(key, []).append(line["metrics"])

    def ranks(self, skewed: bool = False) -> list[TableRow]:
        return sorted(
            {rank for _, rank, skew, _ in self._metrics if bool(skew.percent) == skewed}, key=lambda rank: rank.place
        )

    def queries(self) -> list[str]:
        found = {query for query, *_ in self._metrics}
        return [query for query in QUERIES if query in found]

    def skews(self) -> list[Skew]:
        return sorted({skew for _, _, skew, _ in self._metrics})

    def loads(self) -> list[int | None]:
        return sorted({load for *_, load in self._metrics}, key=lambda load: load or 0)

    def of(self, query: str, rank: TableRow, skew: Skew = _NO_SKEW, load: int | None = None) -> list[Metrics]:
        """The metrics of the repetitions of a run. ``load``: None for runs of any load, if there is only one."""
        if load is not None:
            return self._metrics.get((query, rank, skew, load), [])
        prefix = (query, rank, skew)
        return [metrics for key, found in self._metrics.items() if key[:3] == prefix for metrics in found]


def median(metrics: Sequence[Metrics], value: Value, form: str = "{:,.1f}") -> str:
    found = [number for each in metrics if (number := value(each)) is not None]
    if not found:
        return ABSENT
    few = "" if len(found) == len(metrics) else f" ({len(found)} of {len(metrics)})"
    return form.format(statistics.median(found)) + few


def mean_checkpointing(metrics: Metrics) -> float | None:
    times = metrics["checkpointing_ms"]
    return None if times is None else times["mean"]


def latency_before(percentile: str) -> Value:
    return lambda metrics: metrics["latency_undisturbed_ms"][percentile]


def of_failure(step: str) -> Value:
    return lambda metrics: None if metrics["failure"] is None else metrics["failure"][step]


def _invalid_share(metrics: Metrics) -> float | None:
    failure = metrics["failure"]
    return failure["invalid"] / failure["durable"] if failure and failure["durable"] else None


def _expected_share(metrics: Metrics) -> float | None:
    failure = metrics["failure"]
    if not failure or not failure["durable"] or failure.get("expected") is None:
        return None
    return float(failure["expected"] / failure["durable"])


# ---- tables


def _table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], statement: str = ""
) -> Iterator[MedianTable]:
    """Yields the table, or no table if all cells of its queries are absent."""
    if any(cell != ABSENT for row in rows for cell in row[len(_HEADINGS) :]):
        yield MedianTable(title, headings, rows, statement)


def _by_query(title: str, groups: Repetitions, value: Value, figure: str = "") -> Iterator[MedianTable]:
    queries = groups.queries()
    rows = [
        (*rank.cells, *(median(groups.of(query, rank), value) for query in queries))
        for rank in groups.ranks()
        if any(groups.of(query, rank) for query in queries)
    ]
    yield from _table(title, (*_HEADINGS, *queries), rows, paper.STATEMENTS.get(figure, ""))


def _paper_rows(figures: paper.Figures, queries: Sequence[str]) -> list[tuple[str, ...]]:
    return [
        (*_paper_cells(workers, protocol), *(given.get(query, ABSENT) for query in queries))
        for (workers, protocol), given in figures.items()
        if not given.keys().isdisjoint(queries)
    ]


def _paper_cells(workers: int, protocol: str) -> tuple[str, str, str]:
    return f"{workers} (paper)", f"{protocol} ({paper.LABELS[protocol]})", ROLLBACK


def _overhead(groups: Repetitions) -> Iterator[MedianTable]:
    queries = groups.queries()
    rows = [
        (*rank.cells, *(median(groups.of(query, rank), lambda m: m["overhead"], "{:.3f}") for query in queries))
        for rank in groups.ranks()
    ]
    if rows:
        rows += _paper_rows(paper.OVERHEAD, queries)
    yield from _table("Table II: bytes sent per byte of rows", (*_HEADINGS, *queries), rows)


def _invalid(groups: Repetitions) -> Iterator[MedianTable]:
    queries = groups.queries()
    rows = [
        (*rank.cells, *(_snapshots(groups.of(query, rank)) for query in queries))
        for rank in groups.ranks()
        if rank.recovery != NONE
    ]
    if rows:
        rows += _paper_rows(paper.INVALID, queries)
    title = "Table III: snapshots in the measured time, and of those durable at the failure how many were invalid"
    yield from _table(title, (*_HEADINGS, *queries), rows)


def _snapshots(metrics: Sequence[Metrics]) -> str:
    """The number of snapshots, the share of invalid ones, the expected share, and the number of forced ones, if any."""
    if not metrics:
        return ABSENT
    forced = median(metrics, lambda m: m["checkpoints"]["forced"], "{:,.0f}")
    expected = median(metrics, _expected_share, "{:.1%}")
    more = "" if expected == ABSENT else f", expected {expected}"
    more += "" if forced == "0" else f", {forced} forced"
    total = median(metrics, lambda m: m["checkpoints"]["snapshots"], "{:,.0f}")
    return f"{total} ({median(metrics, _invalid_share, '{:.1%}')}{more})"


def _cyclic(groups: Repetitions) -> Iterator[MedianTable]:
    columns: Mapping[str, tuple[Value, str]] = {
        "CT": (mean_checkpointing, "{:,.1f} ms"),
        "RT": (of_failure("restart_ms"), "{:,.0f} ms"),
        "IC": (_invalid_share, "{:.1%}"),
    }
    rows = [
        (*rank.cells, *(median(found, value, form) for value, form in columns.values()))
        for rank in groups.ranks()
        if rank.recovery != NONE and (found := groups.of(CYCLE, rank))
    ]
    if rows:
        rows += [
            (*_paper_cells(workers, protocol), *given.values()) for (workers, protocol), given in paper.CYCLIC.items()
        ]
    title = "Table IV: the cyclic query: checkpointing time (CT), restart time (RT), invalid checkpoints (IC)"
    yield from _table(title, (*_HEADINGS, *columns), rows)


Throughputs = Mapping[tuple[str, TableRow], float]


def _searched(searches: Iterable[Line]) -> Iterator[MedianTable]:
    found = {
        (line["query"], TableRow(line["parallelism"], line["protocol"], line["recovery"])): float(line["events_per_s"])
        for line in searches
    }
    yield from _throughputs("Figure 7: maximum sustainable throughput", found, paper.STATEMENTS["7"])


def _measured(groups: Repetitions) -> Iterator[MedianTable]:
    """The throughput of all runs. A paced run whose throughput is below its rate did not keep up."""
    found = {
        (query, rank): statistics.median(rates)
        for query in groups.queries()
        for rank in groups.ranks()
        if (rates := [rate for metrics in groups.of(query, rank) if (rate := metrics["throughput_events_per_s"])])
    }
    yield from _throughputs("Throughput of the runs", found)


def _throughputs(title: str, found: Throughputs, statement: str = "") -> Iterator[MedianTable]:
    queries = [query for query in QUERIES if any(query == other for other, _ in found)]

    def shown(query: str, rank: TableRow) -> str:
        rate, baseline = found.get((query, rank)), found.get((query, TableRow(rank.parallelism, NONE, NONE)))
        if rate is None:
            return ABSENT
        return f"{rate:,.0f}" if not baseline else f"{rate:,.0f} ({rate / baseline:.0%})"

    ranks = sorted({rank for _, rank in found}, key=lambda rank: rank.place)
    rows = [(*rank.cells, *(shown(query, rank) for query in queries)) for rank in ranks]
    title += ", events/s (of that without checkpoints)"
    yield from _table(title, (*_HEADINGS, *queries), rows, statement)


def _skewed(
    title: str, groups: Repetitions, value: Value, loads: Sequence[int], figure: str = ""
) -> Iterator[MedianTable]:
    """One table for each load. Includes runs at a given rate."""
    queries = [query for query in groups.queries() if query in KEYED]
    for load in [found for found in groups.loads() if found is None or found in loads]:
        rows = [
            (
                *rank.cells,
                f"{skew.percent}%",
                skew.keys,
                *(median(groups.of(query, rank, skew, load), value) for query in queries),
            )
            for rank in groups.ranks(skewed=True)
            for skew in groups.skews()
            if any(median(groups.of(query, rank, skew, load), value) != ABSENT for query in queries)
        ]
        name = title if load is None else f"{title}, {load}% of the throughput without skew"
        yield from _table(name, (*_HEADINGS, "hot", "keys by", *queries), rows, paper.STATEMENTS.get(figure, ""))
