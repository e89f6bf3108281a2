"""``python -m clonos_py.bench checkmate``: makes the runs that the file of results lacks, and prints the tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from clonos_py.bench.checkmate.grid import CheckmateCell, GridSelection, Variant, cells
from clonos_py.bench.checkmate.running import MissingRuns, RunTerms
from clonos_py.bench.checkmate.simulated import ClusterTerms
from clonos_py.cli.counts import Count, words
from clonos_py.cli.options import resolved, setting_options
from clonos_py.evaluation.checkmate.dimensions import KEYS, QUERIES, RECOVERIES
from clonos_py.evaluation.checkmate.results import RUN, SEARCH, results
from clonos_py.evaluation.checkmate.tables import markdown, tables
from clonos_py.model.errors import SettingError
from clonos_py.settings.definitions import Runtime
from clonos_py.settings.protocols import COMPARED_NAMES

_SETTINGS = (
    "runtime", "address", "checkpoint_interval", "standbys", "standbys_per_process", "linger", "frame_rows", "spill",
    "in_flight_budget", "seed",
)  # fmt: skip
_CLUSTER = ("machines", "processors", "rows_per_row")
_SEARCH_TRIALS = 8
"""About how many trials a search takes."""
_START_S = 15.0
"""The estimate for starting and ending a run."""


def run(out: Path, **given: Any) -> int:
    """Carries out the command. Returns the exit code: 1 if a run failed, else 0."""
    selection = GridSelection(
        given["queries"],
        given["protocols"],
        given["recoveries"],
        _numbers("parallelism", given["parallelisms"]),
        _numbers("skew", given["skews"]),
        given["runs"],
        given["keys"],
    )
    settings = {key: given[key] for key in _SETTINGS if given.get(key) not in (None, ())}
    cluster = _cluster(settings, {name: given[name] for name in _CLUSTER if given[name] is not None})
    if given["rate"] is not None and given["unpaced"] is not None:
        raise SettingError("--rate and --unpaced contradict each other: leave one of them out")
    terms = RunTerms(
        given["warm_up_s"], given["seconds"], given["trial_s"], given["rate"], settings, cluster, given["unpaced"]
    )
    work = MissingRuns(cells(selection, not terms.searched), terms, results(out))
    for variant in dict.fromkeys(cell.variant for cell in work.cells):
        terms.settings(variant)  # contradicting settings raise before anything runs
    work.results.begin(terms.plain)
    failed = _perform(work)
    click.echo(markdown(tables(work.results.good(SEARCH), work.results.good(RUN))))
    if failed:
        click.echo(f"{failed} of {len(work.cells)} runs failed; the same command tries them again", err=True)
    return 1 if failed else 0


def _cluster(settings: Mapping[str, Any], given: Mapping[str, int]) -> ClusterTerms | None:
    if resolved({}, settings).runtime is Runtime.SIM:
        return ClusterTerms(**given)
    if given:
        option = next(iter(given)).replace("_", "-")
        raise SettingError(f"--{option} needs a simulated cluster: add --runtime sim, or leave it out")
    return None


def _perform(work: MissingRuns) -> int:
    """Makes all missing runs. Returns how many failed."""
    if work.results.cut_off:
        click.echo(work.results.cut_off, err=True)
    missing = work.missing
    click.echo(f"{len(work.cells) - len(missing)} of {len(work.cells)} runs are done, {len(missing)} left", err=True)
    if not missing:
        return 0
    forecast = Forecast(work)
    with ExitStack() as stack:
        if resolved({}, work.terms.given).runtime is Runtime.RAY:
            from clonos_py.runtime.ray.cluster import connected

            stack.enter_context(connected(work.terms.given.get("address")))  # one Ray for all runs
        for number, cell in enumerate(missing, 1):
            outcome = work.perform(cell, _print_progress)
            forecast.record(cell, time.monotonic())
            left = missing[number:]
            _print_progress(f"{len(work.cells) - len(left)}/{len(work.cells)} {outcome}; {forecast.text(left)}")
    return len(work.missing)


def _print_progress(line: str) -> None:
    click.echo(line, err=True)


class Forecast:
    """Estimates the remaining time: the planned time of the remaining runs, scaled by the ratio of real to planned time
    of the finished runs."""

    def __init__(self, work: MissingRuns) -> None:
        self._terms = work.terms
        self._searches = set(work.searches)
        self.began = time.monotonic()
        self._planned_done_s = self._took_s = 0.0

    def record(self, cell: CheckmateCell, now: float) -> None:
        self._planned_done_s += self._planned_s([cell])
        self._searches.discard(cell.variant)
        self._took_s = now - self.began

    def text(self, left: list[CheckmateCell]) -> str:
        minutes = round(self._planned_s(left) * self._took_s / self._planned_done_s / 60)
        return f"{len(left)} left, about {minutes // 60} h {minutes % 60:02} min" if left else "none left"

    def _planned_s(self, runs: list[CheckmateCell]) -> float:
        searched: set[Variant] = {cell.variant for cell in runs} & self._searches
        search_s = _SEARCH_TRIALS * (self._terms.trial_s + _START_S)
        return len(runs) * (self._terms.warm_up_s + self._terms.seconds + _START_S) + len(searched) * search_s


def _numbers(what: str, given: list[str]) -> list[int]:
    wrong = next((word for word in given if not word.isdecimal()), None)
    if wrong is not None:
        raise SettingError(f"{what} {wrong!r} is not a whole number: write such as 0,10 with commas between them")
    return [int(word) for word in given]


command = click.Command(
    "checkmate",
    callback=run,
    params=[
        words("--queries", "queries", ",".join(QUERIES), "Which queries."),
        words("--protocols", "protocols", ",".join(COMPARED_NAMES), "Which checkpoint protocols."),
        words("--recoveries", "recoveries", ",".join(RECOVERIES), "none: without checkpoints, to compare with."),
        words("--parallelism", "parallelisms", "1,2,4", "Tasks of each operator."),
        words("--skews", "skews", "0,10,20,30", "Percent of events with a hot key; above 0 for q3, q8 and q12."),
        words(
            "--keys", "keys", ",".join(KEYS),
            "How rows are shared under skew: by hash, or by the remainder of the key as in the paper's implementation.",
        ),
        click.Option(
            ["--runs"], type=click.IntRange(1), default=5, show_default=True, help="Runs of each combination."
        ),
        click.Option(
            ["--warm-up-s"], type=click.FloatRange(0), default=30.0, show_default=True,
            help="Seconds of each run before the measurement.",
        ),
        click.Option(
            ["--seconds"], type=click.FloatRange(5), default=60.0, show_default=True,
            help="Seconds of the measurement. A task is killed after 30% of it, in the cyclic query after 80%.",
        ),
        click.Option(
            ["--trial-s"], type=click.FloatRange(5), default=20.0, show_default=True,
            help="Seconds of each trial of the search for the maximum sustainable throughput.",
        ),
        click.Option(
            ["--rate"], type=Count(),
            help="Events per second of all runs; without it 80% of the maximum sustainable throughput that is "
            "searched for, with skew also 50%.",
        ),
        click.Option(
            ["--unpaced"], type=Count(), metavar="EVENTS",
            help="Measure only throughput: read so many events as fast as possible; no task is killed.",
        ),
        click.Option(
            ["--machines"], type=click.IntRange(1),
            help="With --runtime sim: machines of the simulated cluster.  [default: one for each worker]",
        ),
        click.Option(
            ["--processors"], type=click.IntRange(1),
            help="With --runtime sim: processors of each machine.  [default: 1]",
        ),
        click.Option(
            ["--rows-per-row"], type=click.IntRange(1),
            help="With --runtime sim: how many rows each simulated row stands for.  [default: 1]",
        ),
        click.Option(
            ["--out"], type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
            help="File of finished runs, a line of JSON each. Runs that are in it are not repeated.",
        ),
        *setting_options(*_SETTINGS),
    ],
    help="""The evaluation of CheckMate: queries under every checkpoint protocol and recovery, a task killed on the way.

    Prints tables of medians beside the figures of the paper, in Markdown, as clonos analyze does with the plots. The
    same command goes on where it was interrupted, and tries again what failed. With --runtime sim runs take place in
    virtual time, on a simulated cluster; what work costs there is fitted to runs on Ray (see prices).

    \b
    Examples:
      python -m clonos_py.bench checkmate --out checkmate.jsonl
      clonos analyze checkmate.jsonl
      python -m clonos_py.bench checkmate --queries q1 --protocols uncoordinated --recoveries rollback \\
        --parallelism 1 --skews 0 --rate 20k --warm-up-s 5 --seconds 15 --runs 1 --out short.jsonl
      python -m clonos_py.bench checkmate --runtime sim --queries q3 --parallelism 10,50 --skews 0 --rate 20k \\
        --warm-up-s 5 --seconds 15 --runs 1 --out simulated.jsonl
    """,
)  # fmt: skip
