"""``clonos config``: shows every setting of a job, with its value and origin."""

from __future__ import annotations

from typing import Any

import click

from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import resolved, setting_options


@click.pass_context
def config(ctx: click.Context, /, **parameters: Any) -> None:
    """The body of the command: resolves and lists the settings."""
    rows = list(resolved(job_of(ctx).settings, parameters).shown())
    name_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, origin in rows:
        click.echo(f"{name:<{name_width}}  {value:<{value_width}}  {origin}")


command = JobCommand(
    "config",
    callback=config,
    params=[click.Argument(["file"]), *setting_options()],
    help=f"""Shows every setting, its value and where it came from.

    {FILE_HELP} A value is taken from the first of: command line, CLONOS_* environment variables, clonos.toml in
    the current folder, Job(...), defaults.

    \b
    Example:
      CLONOS_LINGER=5ms clonos config hot_auctions.py --parallelism 4
    """,
)
