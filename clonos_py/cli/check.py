"""``clonos check``: finds operators that a replay could not repeat, before a failure happens."""

from __future__ import annotations

from typing import Any

import click

from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import resolved


@click.pass_context
def check(ctx: click.Context, /, file: str, rows: int, live: bool, **parameters: Any) -> int:
    """The body of the command: plans the job once to report its errors, runs the trials, and prints the findings."""
    from clonos_py.plan.physical import plan
    from clonos_py.runtime.check.run import check as tried

    job = job_of(ctx)
    warnings = plan(job, resolved(job.settings, {})).warnings
    found = tried(file, parameters, rows, live)
    for finding in found.findings:
        click.echo(str(finding))
    for failure in found.failures:
        click.echo(failure)
    for warning in warnings:
        click.echo(f"warning: {warning}")
    for note in found.notes:
        click.echo(f"note: {note}")
    operators = f"{found.operators} operator{'' if found.operators == 1 else 's'}"
    replay = f"{len(found.findings)} found" if found.findings else "nothing found"
    failed = f", {len(found.failures)} failed" if found.failures else ""
    click.echo(f"{operators} over up to {found.rows} rows: {replay} that a replay cannot repeat{failed}")
    return 1 if found.findings or found.failures else 0


command = JobCommand(
    "check",
    callback=check,
    params=[
        click.Argument(["file"]),
        click.Option(["--rows"], type=click.IntRange(1), default=200, show_default=True, help="Rows of each source."),
        click.Option(["--live"], is_flag=True, help="Ask services, which refuse otherwise; let all sinks write."),
    ],
    help=f"""Finds operators that a replay cannot repeat: they use clocks, random numbers, the network, threads or files
    without the engine's services, or return other rows for the same input.

    Each operator runs twice on the first rows of the sources (generated from the schema where there are none), in two
    processes with different hash seeds and clocks, the second time with the answers of the first. Each finding names
    its line and a remedy. Sinks write the rows where they are not visible; those that cannot are run with --live only,
    and write the rows. The exit code is 1 if there are findings, or if the job does not catch a failure on rows of the
    sources.

    {FILE_HELP} If the job is a function such as job(topic: str), its parameters are options: --topic bids.

    \b
    Examples:
      clonos check hot_auctions.py
      clonos check hot_auctions.py --rows 1000 --live
    """,
)
