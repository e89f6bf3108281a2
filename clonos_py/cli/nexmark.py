"""``clonos nexmark``: runs a Nexmark query, optionally with kills, and reports. ``demo`` shows that no row is lost."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from clonos_py.cli import nexmark_bench
from clonos_py.cli.counts import Count
from clonos_py.cli.nexmark_options import events_from_option, events_options, model_of
from clonos_py.cli.nexmark_spark import generate_command, prove_command, verify_command
from clonos_py.cli.options import file_in_a_folder, resolved, setting_options
from clonos_py.cli.result_files import write_result

_DEMO = (
    "Nexmark query 8, new sellers, over {events:,} events in {seconds:.0f} s.\n"
    "Tasks are killed during the run: {kills}. The job is not restarted."
)
_SINKS = ("files", "digest", "blackhole")


@click.group()
def nexmark() -> None:
    """Runs the Nexmark queries, optionally with kills, and reports."""


def _run(query: str, **given: Any) -> None:
    """The body of ``run``."""
    from clonos_py.evaluation.nexmark.report import lines
    from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
    from clonos_py.observe.console import watch

    order = QueryRun(
        query,
        given["events"],
        given["rate"],
        given["event_rate"],
        SinkKind(given["sink"]),
        given["out"],
        model=model_of(given),
        events_from=given["events_from"],
    )
    settings = resolved({}, given)
    if given["failures"] is not None:
        from clonos_py.evaluation.nexmark.cell_runs import with_failures
        from clonos_py.evaluation.nexmark.failure_plan import read_plan

        settings = with_failures(read_plan(given["failures"]), query, settings)
    with watch(f"nexmark-{query}", settings.log_level, settings.log_format) as listener:
        report = run_query(order, settings, listener)
    for line in lines(report):
        click.echo(line)
    if given["report"] is not None:
        write_result(given["report"], json.dumps(report, indent=2) + "\n")


def _demo(**given: Any) -> int:
    """The body of ``demo``. The exit code is 0 if the results are right."""
    from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query, verify_new_users
    from clonos_py.observe.console import watch

    seconds = given["events"] / given["rate"]
    settings = resolved({"parallelism": 2, "kills": [f"join[0]@{seconds / 2:g}s"]}, given)
    with tempfile.TemporaryDirectory(prefix="clonos-demo-") as folder:
        order = QueryRun("q8", given["events"], given["rate"], sink=SinkKind.FILES, out=Path(folder) / "results")
        click.echo(_DEMO.format(events=order.events, seconds=seconds, kills=", ".join(map(str, settings.kills))))
        with watch("nexmark-q8", settings.log_level, settings.log_format) as listener:
            report = run_query(order, settings, listener)
        click.echo("checking against a plain Python computation over the same events ...")
        rows, wrong = verify_new_users(order, settings)
    if wrong is not None:
        click.echo(f"NOT identical: {wrong}")
        return 1
    if len(report["failures"]) < len(settings.kills):
        click.echo(
            f"identical, but only {len(report['failures'])} of {len(settings.kills)} kills happened: inconclusive"
        )
        return 1
    recoveries = [_recovery_text(failure) for failure in report["failures"]]
    click.echo("; ".join([f"identical: all {rows:,} rows exist, no duplicates, none lost", *recoveries]))
    return 0


def _recovery_text(failure: Mapping[str, Any]) -> str:
    steps = (
        ("detected", "detected_ms"),
        ("standby activated", "standby_activated_ms"),
        ("new results", "first_new_effect_ms"),
    )
    times = [f"{step} {failure[key]:,.0f} ms" for step, key in steps if failure[key] is not None]
    return f"{failure['task']} killed: " + ", ".join(times)


_PATH = click.Path(path_type=Path)

nexmark.add_command(
    click.Command(
        "run",
        callback=_run,
        params=[
            click.Argument(["query"]),
            click.Option(["--events"], type=Count(), default="10M", show_default=True, help="How many events."),
            events_from_option(),
            click.Option(["--rate"], type=Count(), help="Events per second; by default as fast as possible."),
            *events_options(),
            click.Option(
                ["--sink"], type=click.Choice(_SINKS), default="blackhole", show_default=True,
                help="Parquet files in --out, a digest of all rows, or nothing.",
            ),
            click.Option(["--out"], type=_PATH, metavar="DIR", help="Folder of the results."),
            click.Option(
                ["--report"], type=_PATH, metavar="FILE", callback=file_in_a_folder, help="Write the report as JSON."
            ),
            nexmark_bench.FAILURES,
            *setting_options(),
        ],
        help="""Runs QUERY (q0 to q22) over generated events.

        \b
        Examples:
          clonos nexmark run q0 --events 50M --parallelism 2 --runtime local
          clonos nexmark run q8 --events 5M --rate 500k --kill 'join[0]@3s' --report report.json
          clonos nexmark run q8 --events 5M --rate 200k --failures plan.txt --trace trace
          clonos nexmark run q5 --sink files --out results --guarantee at-least-once
          clonos nexmark run q5 --events-from events/ --rate 1M
        """,
    )
)  # fmt: skip

nexmark.add_command(
    click.Command(
        "demo",
        callback=_demo,
        params=[
            click.Option(["--events"], type=Count(), default="10M", show_default=True, help="How many events."),
            click.Option(["--rate"], type=Count(), default="500k", show_default=True, help="Events per second."),
            *setting_options("runtime", "address", "checkpoint_interval", "kills"),
        ],
        help="""Kills a task of a running query and checks that nothing is lost or duplicated.

        \b
        Examples:
          clonos nexmark demo
          clonos nexmark demo --runtime local --kill 'source-nexmark[1]@4s' --kill 'join[0]@9s'
        """,
    )
)

nexmark.add_command(nexmark_bench.mst)
nexmark.add_command(nexmark_bench.matrix)
nexmark.add_command(generate_command)
nexmark.add_command(verify_command)
nexmark.add_command(prove_command)

command = nexmark
