"""``clonos analyze``: figures and a report of a run from its trace, or of a protocol evaluation from its results."""

from __future__ import annotations

import json
from pathlib import Path

import click

from clonos_py.cli.result_files import write_result
from clonos_py.model.errors import SettingError

REPORT, FIGURES = "report.html", "figures.json"
_SMALL_BYTES = 32 << 20
"""A trace up to this size is read within seconds, by a small Spark session."""
_PATH = click.Path(path_type=Path)


def analyze(trace: Path, out: Path | None, master: str | None) -> None:
    """The body of the command."""
    if trace.is_file():
        _evaluation(trace, out)
    else:
        _run(trace, out, master)


def _evaluation(path: Path, out: Path | None) -> None:
    """Prints the tables of an evaluation, and writes the page of tables and plots."""
    from clonos_py.evaluation.checkmate.page import page
    from clonos_py.evaluation.checkmate.results import RUN, SEARCH, results
    from clonos_py.evaluation.checkmate.tables import markdown, tables

    finished = results(path)
    if finished.terms is None:
        raise SettingError(f"{path} is empty: name a trace, or a file of results of the bench checkmate")
    folder = _create(out or path.parent)
    report = folder / f"{path.stem}.html"
    searches, runs = [*finished.good(SEARCH)], [*finished.good(RUN)]
    write_result(report, page(searches, runs, finished.terms))
    click.echo(markdown(tables(searches, runs)))
    click.echo(f"the report is {report}")


def _run(trace: Path, out: Path | None, master: str | None) -> None:
    """Analyzes a trace. Checks the folders before it starts Spark."""
    from clonos_py.evaluation.spark.session import named_errors, session, shown
    from clonos_py.observe.trace import read_header

    read_header(trace)
    folder = _create(out or trace)
    small = sum(part.stat().st_size for part in trace.glob("*/*.parquet")) <= _SMALL_BYTES
    with session("analyze", master, short=small) as spark, shown(spark, "reading the trace"), named_errors(str(trace)):
        from clonos_py.evaluation.spark.analysis import analyse

        figures = analyse(spark, trace)
    from clonos_py.evaluation.spark.analysis_report import page
    from clonos_py.evaluation.spark.analysis_words import story

    write_result(folder / FIGURES, json.dumps(figures, indent=2) + "\n")
    write_result(folder / REPORT, page(figures))
    for sentence in story(figures):
        click.echo(sentence)
    click.echo(f"the report is {folder / REPORT}, its figures are {folder / FIGURES}")


def _create(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SettingError(f"--out {folder}: {problem.strerror}; name a folder that can be written") from None
    return folder


command = click.Command(
    "analyze",
    callback=analyze,
    params=[
        click.Argument(["trace"], type=_PATH),
        click.Option(
            ["--out"], type=_PATH, metavar="DIR", help="Folder of the report; by default that of the trace or file."
        ),
        click.Option(["--master"], metavar="URL", help="Spark's master; by default all cores of this machine."),
    ],
    help="""Makes a report of the trace that a run with --trace TRACE has written: latency over time with every failure
    marked, throughput, checkpoints, restarts, recoveries, message overhead. One HTML page and the figures as JSON.

    Needs clonos-py[spark] and Java 17 or newer.

    TRACE may also be a file of results of python -m clonos_py.bench checkmate. Then it prints the tables of that
    evaluation of checkpoint protocols beside the figures of the paper, in Markdown, and makes a page of tables
    and plots.

    \b
    Examples:
      clonos nexmark run q8 --rate 200k --events 4M --kill 'join[0]@8s' --trace trace
      clonos analyze trace --out report
      clonos analyze checkmate.jsonl
    """,
)
