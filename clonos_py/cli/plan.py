"""``clonos plan``: shows the physical plan of a job without running it."""

from __future__ import annotations

from typing import Any

import click

from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import resolved, setting_options
from clonos_py.runtime.garbage import kept

FORMATS = ("text", "mermaid", "svg")


@click.pass_context
def plan(ctx: click.Context, /, format: str, **parameters: Any) -> None:
    """The body of the command: loads, plans and draws the job."""
    with kept():
        from clonos_py.cli.drawing import draw
        from clonos_py.plan.physical import plan as physical_plan

        job = job_of(ctx)
        settings = resolved(job.settings, parameters)
        click.echo(draw(physical_plan(job, settings), format))


command = JobCommand(
    "plan",
    callback=plan,
    params=[
        click.Argument(["file"]),
        click.Option(["--format"], type=click.Choice(FORMATS), default="text", show_default=True, help="How to draw."),
        *setting_options(
            "runtime",
            "parallelism",
            "guarantee",
            "sharing_depth",
            "protocol",
            "chaining",
            "standbys",
            "standby_cpus",
            "standby_feed",
            "key_groups",
            "frame_rows",
        ),
    ],
    help=f"""Shows what will run: tasks, the operators chained in each, how rows travel between them.

    {FILE_HELP}

    \b
    Examples:
      clonos plan hot_auctions.py --parallelism 4
      clonos plan hot_auctions.py --format svg > plan.svg
    """,
)
