"""``python -m clonos_py.bench peers``: creates missing environments and event files, measures engines and prints."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from clonos_py.bench.peers import environment, verifying
from clonos_py.bench.peers.dataflows import Bytewax
from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Engine, Terms
from clonos_py.bench.peers.flink import Flink, cluster_settings, table_settings
from clonos_py.bench.peers.measuring import dataset_of, datasets, measured, schedule
from clonos_py.bench.peers.ours import Clonos
from clonos_py.bench.peers.queries import QUERIES, check
from clonos_py.bench.peers.rates import RateComparison
from clonos_py.cli.counts import Count
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.description import described
from clonos_py.model.errors import SettingError

_SEED = 1
_EVENTS, _SMALL = 100_000_000, 100_000


def engines(root: Path) -> dict[str, Engine]:
    """All engines by their names on the command line. The first one is compared with each of the others."""
    flink = environment.flink(root)
    return {
        "clonos": Clonos(),
        "flink": Flink(flink),
        "pyflink": Flink(flink, python_functions=True),
        "bytewax": Bytewax(environment.bytewax(root)),
    }


def print_progress(line: str) -> None:
    """Prints progress, only if stderr is a terminal."""
    if sys.stderr.isatty():
        click.echo(line, err=True)


def run(
    queries: tuple[str, ...],
    only: tuple[str, ...],
    events: int | None,
    turns: int,
    work: Path,
    cores: int | None,
    verify: bool,
    report: Path | None,
    **terms: Any,
) -> None:
    """Measures the engines or verifies their results, and prints."""
    check(queries)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cores or terms["parallelism"]])
    queries = queries or QUERIES
    chosen = [engine for name, engine in engines(work).items() if not only or name in ("clonos", *only)]
    for engine in chosen:
        engine.prepare(print_progress)
    if verify:
        small = verifying.small(work, events or _SMALL, terms["parallelism"], _SEED)
        _verify(chosen, queries, small, Terms(**terms))
    else:
        sets = datasets(work, events or _EVENTS, terms["parallelism"], _SEED)
        _measure(chosen, queries, sets, turns, Terms(**terms), report)


def _measure(
    chosen: list[Engine],
    queries: tuple[str, ...],
    sets: tuple[Dataset, Dataset],
    turns: int,
    terms: Terms,
    report: Path | None,
) -> None:
    for dataset in dict.fromkeys(dataset_of(query, *sets) for query in queries):
        dataset.write(print_progress)
    made = RateComparison(tuple(engine.name for engine in chosen), {})
    for made in measured(list(schedule(queries, chosen, turns)), chosen, sets, terms, print_progress):
        if report is not None:
            text = json.dumps({**about(sets[0], turns, terms), **made.plain()}, indent=2)
            report.write_text(text + "\n", encoding="utf-8")
    title = f"Parallelism {terms.parallelism}, M events/s in steady state, medians of {turns} runs"
    show(title, made.headings(), [*map(made.line, made.runs), made.mean_line()])
    if made.failures:
        raise SettingError(f"{len(made.failures)} runs failed; the last one: {made.failures[-1]}")


def _verify(chosen: list[Engine], queries: tuple[str, ...], dataset: Dataset, terms: Terms) -> None:
    dataset.write(print_progress)
    verdicts: list[verifying.AnswerComparison] = []
    for engine in chosen:
        able = tuple(query for query in queries if query in engine.queries and query in verifying.ANSWERED)
        with tempfile.TemporaryDirectory(prefix="clonos-peers-") as out:
            if isinstance(engine, Clonos) or not able:
                continue
            for verdict in verifying.verdicts(engine, able, dataset, terms, Path(out)):
                click.echo(f"{engine.name}, {verdict.line}")
                verdicts.append(verdict)
    if not all(verdict.same for verdict in verdicts):
        raise SettingError("the results of an engine differ from the oracle's: see above")


def about(dataset: Dataset, turns: int, terms: Terms) -> dict[str, Any]:
    """Everything that the figures depend on: events, terms, machine, versions, settings of Flink."""
    flink = {**table_settings(dataset, terms.parallelism), **cluster_settings("q0", terms, Path("/run"))}
    return {
        "events": described(dataset.source),
        "turns": turns,
        "terms": asdict(terms),
        "machine": {"cores": sorted(os.sched_getaffinity(0)), "system": platform.platform()},
        "versions": {"flink": environment.FLINK, "bytewax": environment.BYTEWAX, "python": platform.python_version()},
        "flink": flink,
        "flink, where state grows with the stream": {
            key: value for key, value in cluster_settings("q4", terms, Path("/run")).items() if value != flink[key]
        },
    }


command = click.Command(
    "peers",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(
            ["--only"],
            type=click.Choice(["flink", "pyflink", "bytewax"]),
            multiple=True,
            help="Compare only with this engine; may be given several times.",
        ),
        click.Option(["--events"], type=Count(), help="Events of the stream.  [default: 100M; 100k with --verify]"),
        click.Option(["--turns"], type=click.IntRange(1), default=3, show_default=True, help="Runs of each query."),
        click.Option(
            ["--parallelism"], type=click.IntRange(1), default=2, show_default=True, help="Tasks of every operator."
        ),
        click.Option(
            ["--cores"], type=click.IntRange(1), help="Processor cores of each engine.  [default: one for each task]"
        ),
        click.Option(
            ["--checkpoint-s"],
            type=click.IntRange(1),
            default=5,
            show_default=True,
            help="Seconds between checkpoints.",
        ),
        click.Option(
            ["--warm-up-s"],
            type=float,
            default=10.0,
            show_default=True,
            help="Seconds of each run before the measurement.",
        ),
        click.Option(
            ["--seconds"], type=float, default=40.0, show_default=True, help="Seconds of the measurement at most."
        ),
        click.Option(
            ["--work"],
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(".peers"),
            show_default=True,
            help="Folder for environments and events.",
        ),
        click.Option(["--verify"], is_flag=True, help="Compare results with the oracle's instead of measuring."),
        click.Option(
            ["--report"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="File for all figures and settings as JSON.",
        ),
    ],
    help=(
        "QUERIES here and on Flink SQL, PyFlink functions and Bytewax: one table of ratios; without any, all. Installs "
        "what it needs with uv, Maven and a JDK 17.\n\n"
        "Example: python -m clonos_py.bench peers q5 q8 --report peers.json"
    ),
)
