"""``clonos rescale``: stops a detached run and starts it at another parallelism."""

from __future__ import annotations

import click

from clonos_py.cli.detached_runs import address_option, on_cluster, shown_start
from clonos_py.cli.stop import has_stopped, stop_on_cluster
from clonos_py.dsl.runs import STOP_TIMEOUT_S
from clonos_py.model.errors import ClusterError


def rescale(job: str, parallelism: int, address: str | None) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.detached import await_end, rescaled, start_again, state_of, the_driver_of

    with on_cluster(address) as cluster:
        state = state_of(the_driver_of(job))
        if state is None:
            raise ClusterError(f"the driver of {job!r} does not answer: ask again soon")
        content = rescaled(state, parallelism)
        if has_stopped(job, stop_on_cluster(job, STOP_TIMEOUT_S)):
            await_end(job)
            shown_start(job, start_again(job, state.checkpoints, content, cluster))


command = click.Command(
    "rescale",
    callback=rescale,
    params=[
        click.Argument(["job"]),
        click.Option(
            ["--parallelism"], type=click.IntRange(1), required=True, help="How many tasks run each operator."
        ),
        address_option(),
    ],
    help="""Stops a detached run with a last checkpoint, and starts it again from there at another parallelism. The job
    pauses for as long as its processes take to start.

    \b
    Examples:
      clonos rescale hot-auctions --parallelism 8
    """,
)
