"""``clonos analyze``: figures and a report of what happened in a run, from its trace."""

from __future__ import annotations

import json
from pathlib import Path

import click

from clonos_py.model.errors import SettingError
from clonos_py.observe.trace import read_header

REPORT, FIGURES = "report.html", "figures.json"
_PATH = click.Path(path_type=Path)


def analyze(trace: Path, out: Path | None, master: str | None) -> None:
    """The command's body. What is wrong with the folders is said before Spark is started."""
    from clonos_py.spark.session import named_errors, session, shown

    read_header(trace)
    folder = _made(out or trace)
    with session("analyze", master) as spark, shown(spark, "reading the trace"), named_errors(str(trace)):
        from clonos_py.spark.analysis import analyse

        figures = analyse(spark, trace)
    from clonos_py.spark.analysis_report import page
    from clonos_py.spark.analysis_words import story

    (folder / FIGURES).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (folder / REPORT).write_text(page(figures), encoding="utf-8")
    for sentence in story(figures):
        click.echo(sentence)
    click.echo(f"the report is {folder / REPORT}, its figures are {folder / FIGURES}")


def _made(folder: Path) -> Path:
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
        click.Option(["--out"], type=_PATH, metavar="DIR", help="Folder of the report; that of the trace without."),
        click.Option(["--master"], metavar="URL", help="Spark master; all cores of this machine without."),
    ],
    help="""Makes a report of the trace that a run with --trace TRACE has written: latency over time with every failure
    marked, throughput, checkpoints, restarts, recoveries, message overhead. One HTML page and the figures as JSON.

    Needs clonos-py[spark] and Java 17 or newer.

    \b
    Examples:
      clonos nexmark run q8 --rate 200k --events 4M --kill 'join[0]@8s' --trace trace
      clonos analyze trace --out report
    """,
)
