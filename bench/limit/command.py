"""``python -m clonos_py.bench limit``: this engine and DuckDB over the same files, in turns; their results must agree.

DuckDB reads files that are complete and answers once. It is no peer: it keeps no state that survives a failure, and
gives no result before the end. It shows how far a streaming engine is from what the machine can do with these files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from clonos_py.bench.limit.engines import DuckDBRuns, OurRuns, QueryRuns, RunTimes
from clonos_py.bench.limit.queries import SQL
from clonos_py.bench.peers.measuring import datasets
from clonos_py.cli.counts import Count
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.model.errors import ClonosError, SettingError

QUERIES = ("q0", "q1", "q2", "q3", "q5", "q7", "q8", "q11", "q15", "q18", "q20")
"""The queries that are compared by default."""
_SEED = 1


def check(query: str, ours: QueryRuns, limit: QueryRuns, folder: Path) -> None:
    """Raises ClonosError if the engines give different rows."""
    one, other = ours.answer(query, folder), limit.answer(query, folder)
    if one != other:
        raise ClonosError(f"{query}: the results differ: {one.rows} rows here, {other.rows} of DuckDB")


def pairs(query: str, ours: QueryRuns, limit: QueryRuns, folder: Path, turns: int) -> list[tuple[RunTimes, RunTimes]]:
    """The times of alternating runs. Every other turn begins with DuckDB."""
    made = []
    for turn in range(turns):
        if turn % 2:
            second = limit.timed(query, folder)
            made.append((ours.timed(query, folder), second))
        else:
            made.append((ours.timed(query, folder), limit.timed(query, folder)))
    return made


def rows(
    queries: tuple[str, ...], ours: QueryRuns, limit: QueryRuns, folder: Path, events: int, turns: int
) -> Iterator[tuple[str, ...]]:
    """One line for each query, and one for the geometric mean of the ratios."""
    ratios = []
    for query in queries:
        check(query, ours, limit, folder)
        made = pairs(query, ours, limit, folder, turns)
        mine, theirs = (statistics.median(run.seconds for run in side) for side in zip(*made, strict=True))
        cpu, their_cpu = (statistics.median(run.processor_s for run in side) for side in zip(*made, strict=True))
        ratios.append(theirs / mine)
        rates = (f"{events / seconds / 1e6:.2f}" for seconds in (mine, theirs))
        yield query, *rates, f"{ratios[-1]:.2f}", f"{cpu:.1f} s", f"{their_cpu:.1f} s"
    yield "geometric mean", "", "", f"{mean_ratio(ratios):.2f}", "", ""


def mean_ratio(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def run(queries: tuple[str, ...], events: int, turns: int, threads: int, work: Path, **given: Any) -> None:
    """Writes missing files, measures and prints."""
    unknown = [query for query in queries if query not in SQL]
    if unknown:
        raise SettingError(f"{unknown[0]} is not compared with DuckDB: choose from {', '.join(SQL)}")
    settings = resolved({"parallelism": 2}, given)
    dataset, _ = datasets(work, events, max(threads, settings.parallelism), _SEED)
    dataset.write(lambda _: None)
    dataset.read()
    ours, limit = OurRuns(settings), DuckDBRuns(threads)
    headings = ("query", "here, M events/s", "DuckDB", "ratio", "processor time here", "DuckDB")
    tasks = f"{settings.parallelism} tasks of each operator ({settings.runtime.value})"
    title = f"{events:,} events, {tasks}, DuckDB with {threads} threads, medians of {turns} runs"
    show(title, headings, rows(queries or QUERIES, ours, limit, dataset.folder, events, turns))


command = click.Command(
    "limit",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--events"], type=Count(), default=10_000_000, show_default=True, help="Events of the stream."),
        click.Option(["--turns"], type=click.IntRange(1), default=5, show_default=True, help="Runs of each query."),
        click.Option(["--threads"], type=click.IntRange(1), default=2, show_default=True, help="Threads of DuckDB."),
        click.Option(
            ["--work"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(".peers"),
            show_default=True,
            help="Folder for the event files.",
        ),
        *setting_options("parallelism", "runtime", "standbys", "checkpoint_interval"),
    ],
    help=f"QUERIES beside DuckDB over the same files; without any: {', '.join(QUERIES)}. Compares the results, too.",
)
