"""``clonos logs``: shows what a detached run has reported and printed."""

from __future__ import annotations

from collections import deque

import click

from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster


def logs(job: str, address: str | None, namespace: str | None, follow: bool, lines: int) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.asking import answer
    from clonos_py.runtime.ray.detached import followed, the_driver_of

    with on_cluster(address, namespace) as cluster:
        driver = the_driver_of(cluster.named(job))
        if not follow:
            for _, line in deque(answer(driver.lines, 0), maxlen=lines):
                click.echo(line)
            return
        for line in followed(driver, lambda state: state.goes_on):
            click.echo(line)


command = click.Command(
    "logs",
    callback=logs,
    params=[
        click.Argument(["job"]),
        address_option(),
        namespace_option(),
        click.Option(["--follow", "-f"], is_flag=True, help="Go on until the run ends."),
        click.Option(
            ["--lines", "-n"], type=click.IntRange(1), default=100, show_default=True, help="The most lines to show."
        ),
    ],
    help="""Shows what a detached run has reported, such as failures, recoveries and checkpoints, what its functions
    have printed, and warnings of its processes. The last 10,000 lines are kept; those of a dead driver are not.
    Those of a run that was started with --log-format json are JSON objects.

    \b
    Examples:
      clonos logs hot-auctions
      clonos logs hot-auctions --follow
    """,
)
