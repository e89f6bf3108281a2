"""``clonos nexmark mst`` and ``clonos nexmark matrix``: many runs of queries, for comparable figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from clonos_py.cli.counts import Count, Words, words
from clonos_py.cli.options import file_in_a_folder, resolved, setting_options
from clonos_py.cli.result_files import write_result
from clonos_py.model.errors import SettingError
from clonos_py.settings.definitions import Settings

if TYPE_CHECKING:
    from clonos_py.evaluation.nexmark.cell_runs import CellWorkload
    from clonos_py.evaluation.nexmark.matrix import MatrixCell
    from clonos_py.evaluation.nexmark.sustained import RateTrial, Search

_PATH = click.Path(path_type=Path)
_SHARED_SETTINGS = ("runtime", "address", "standbys", "checkpoint_interval", "linger", "spill", "seed", "kills")

FAILURES = click.Option(
    ["--failures"], type=_PATH, metavar="FILE",
    help="A failure plan: lines such as join[0]@3s, any@10s (a task drawn by --seed) or 3 any@20s (at once).",
)  # fmt: skip


# ---- the maximum sustainable throughput


def _mst(query: str, **given: Any) -> int:
    """The body of ``mst``. The exit code is 1 if no rate was sustained."""
    from clonos_py.evaluation.nexmark.cell_runs import sustained
    from clonos_py.evaluation.nexmark.sustained import ThroughputSearch

    settings = resolved({}, given)
    parameters = ThroughputSearch(given["seconds"], given["precision"] / 100, given["lag"] * 1e3, given["first"])
    with _progress(f"{query}: measuring a first rate") as report:
        found, best = sustained(
            query, parameters, settings, lambda found: report(_trial(found.trials[-1]), _known(query, found))
        )
    if given["report"] is not None:
        trials = [asdict(trial) for trial in found.trials]
        content = {"query": query, "events_per_s": found.low, "trials": trials, "report": best}
        write_result(given["report"], json.dumps(content, indent=2) + "\n")
    if not found.low:
        click.echo(
            f"{query} sustained none of {len(found.trials)} rates, the last {found.trials[-1].rate:,.0f} events/s"
        )
        return 1
    p99_ms = best["latency_steady_ms"]["p99"]
    upper = "no higher one was tried" if found.high is None else f"{found.high:,.0f} was too much"
    click.echo(f"{query} sustains {found.low:,.0f} events/s, p99 latency {p99_ms:,.1f} ms; {upper}")
    return 0


def _known(query: str, found: Search) -> str:
    upper = "" if found.high is None else f", less than {found.high:,.0f}"
    return f"{query}: at least {found.low:,.0f} events/s{upper}"


def _trial(trial: RateTrial) -> str:
    lag = "no marker arrived" if trial.lag_ms is None else f"{trial.lag_ms:,.0f} ms behind at the end"
    return f"{trial.rate:>12,.0f} events/s  {'sustained' if trial.sustained else 'too much '}  {lag}"


@contextmanager
def _progress(text: str) -> Iterator[Callable[[str, str], None]]:
    """Shows progress on a terminal: a line for each result, and the current activity. Silent otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line, doing: None
        return
    with console.status(text) as status:

        def report(line: str, doing: str) -> None:
            console.print(line, highlight=False)
            status.update(doing)

        yield report


mst = click.Command(
    "mst",
    callback=_mst,
    params=[
        click.Argument(["query"]),
        click.Option(
            ["--seconds"], type=click.FloatRange(5), default=20.0, show_default=True, help="Length of each trial."
        ),
        click.Option(
            ["--precision"], type=click.FloatRange(0.1, 50), default=5.0, show_default=True,
            help="How exactly to find the rate, in percent.",
        ),
        click.Option(
            ["--lag"], type=click.FloatRange(0.01), default=0.5, show_default=True,
            help="How many seconds a sustained rate may be behind at the end of a trial.",
        ),
        click.Option(["--first"], type=Count(), help="The first rate, in events per second; measured by default."),
        click.Option(
            ["--report"], type=_PATH, metavar="FILE", callback=file_in_a_folder, help="Write all trials as JSON."
        ),
        *setting_options("parallelism", "guarantee", "sharing_depth", *_SHARED_SETTINGS),
    ],
    help="""Searches for the maximum sustainable throughput of QUERY: the highest rate at which back-pressure does not
    make its sources fall behind, by bisection.

    \b
    Examples:
      clonos nexmark mst q8 --parallelism 2
      clonos nexmark mst q1 --first 4M --seconds 60 --precision 2 --report q1.json
    """,
)  # fmt: skip


# ---- the matrix


def _matrix(out: Path, **given: Any) -> int:
    """The body of ``matrix``. The exit code is 1 if a run failed."""
    from clonos_py.cli.tables import show
    from clonos_py.evaluation.nexmark.cell_runs import run_cell
    from clonos_py.evaluation.nexmark.matrix import HEADINGS, RUN, results, summary

    workload = _workload(given)
    possible, contradictions = _possible(given)
    runs = results(out)
    if runs.cut_off:
        click.echo(runs.cut_off, err=True)
    runs.begin(_common(given, workload))
    cells = [cell for cell, _ in possible]
    with _bar(len(cells)) as step:
        for cell, settings in possible:
            step(cell.name, 0)
            if not runs.finished(RUN, asdict(cell)):
                runs.attempt(RUN, asdict(cell), partial(run_cell, cell.query, workload, settings))
            step(cell.name, 1)
    rows = summary(runs, cells, out)
    show(f"{len(rows)} runs, {workload.mode.value}", HEADINGS, rows)
    for reason, count in contradictions.items():
        click.echo(f"left out {count}: {reason}")
    failed = sum(not runs.finished(RUN, asdict(cell)) for cell in cells)
    if failed:
        click.echo(f"{failed} of {len(cells)} runs failed; the same command tries them again")
    return 1 if failed else 0


def _workload(given: dict[str, Any]) -> CellWorkload:
    from clonos_py.evaluation.nexmark.cell_runs import CellWorkload, Mode
    from clonos_py.evaluation.nexmark.failure_plan import read_plan

    if given["mst"] and (given["rate"] or given["events"]):
        raise SettingError("--mst chooses rates and events itself: omit --rate and --events")
    if given["rate"] and given["events"]:
        raise SettingError("--rate runs for --seconds: omit --events")
    mode = Mode.SUSTAINED if given["mst"] else Mode.RATE if given["rate"] else Mode.THROUGHPUT
    failures = () if given["failures"] is None else tuple(read_plan(given["failures"]))
    return CellWorkload(mode, given["seconds"], given["events"], given["rate"], failures)


def _possible(given: dict[str, Any]) -> tuple[list[tuple[MatrixCell, Settings]], dict[str, int]]:
    """The valid cells with their settings, and the number of cells left out by reason, a contradiction between
    settings. Raises SettingError for a value that is invalid by itself."""
    from clonos_py.connectors import BlackholeSink
    from clonos_py.evaluation.nexmark.jobs import build
    from clonos_py.evaluation.nexmark.matrix import cells
    from clonos_py.evaluation.nexmark.running import QueryRun

    dimensions = {"parallelism": "parallelisms", "sharing_depth": "depths", "guarantee": "guarantees"}
    for key, many in dimensions.items():
        for value in given[many]:
            resolved({}, {**given, key: value})
    for query in given["queries"]:
        build(query, QueryRun(query, 1_000).source(resolved({}, given)), BlackholeSink())
    possible: list[tuple[MatrixCell, Settings]] = []
    contradictions: dict[str, int] = {}
    for cell in cells(given["queries"], *(given[many] for many in dimensions.values())):
        try:
            possible.append((cell, resolved({}, {**given, **cell.settings})))
        except SettingError as contradiction:
            contradictions[str(contradiction)] = contradictions.get(str(contradiction), 0) + 1
    return possible, contradictions


def _common(given: dict[str, Any], workload: CellWorkload) -> dict[str, Any]:
    """The parameters that all runs of a matrix share."""
    shown = {key: value for key, value, _ in resolved({}, given).shown() if key in _SHARED_SETTINGS}
    return {**asdict(workload), "mode": workload.mode.value, "failures": list(workload.failures), **shown}


@contextmanager
def _bar(total: int) -> Iterator[Callable[[str, int], None]]:
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=total)
        yield lambda name, done: progress.update(bar, description=name, advance=done)


matrix = click.Command(
    "matrix",
    callback=_matrix,
    params=[
        click.Option(["--queries"], type=Words(), required=True, help="The queries, such as q1,q3,q8."),
        words("--parallelism", "parallelisms", "1", "Tasks per operator, such as 1,2."),
        words("--sharing-depth", "depths", "full", "Sharing depths, such as 0,1,full."),
        words("--guarantee", "guarantees", "exactly-once", "Guarantees, such as exactly-once,at-least-once."),
        click.Option(["--out"], type=_PATH, required=True, metavar="DIR", help="Folder of the results."),
        click.Option(
            ["--seconds"], type=click.FloatRange(1), default=20.0, show_default=True, help="Length of each run."
        ),
        click.Option(["--events"], type=Count(), help="Events of each run, instead of --seconds."),
        click.Option(["--rate"], type=Count(), help="Events per second; by default as fast as possible."),
        click.Option(["--mst"], is_flag=True, help="Search for the highest rate that each cell sustains."),
        FAILURES,
        *setting_options(*_SHARED_SETTINGS),
    ],
    help="""Runs every combination of queries, parallelism, sharing depth and guarantee, and prints a table.

    Each run leaves a report in --out. The same command continues where it was interrupted, and retries failed runs;
    combinations of settings that contradict each other are left out and listed.

    \b
    Examples:
      clonos nexmark matrix --queries q1,q3,q8 --parallelism 1,2 --sharing-depth 1,full --out matrix
      clonos nexmark matrix --queries q3 --rate 200k --failures plan.txt --guarantee exactly-once,at-least-once --out m2
    """,
)  # fmt: skip
