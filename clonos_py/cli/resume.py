"""``clonos resume``: starts a detached run again from its last checkpoint."""

from __future__ import annotations

import click

from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster, shown_start


def resume(job: str, address: str | None, namespace: str | None, checkpoints: str) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.detached import redeploy

    with on_cluster(address, namespace) as cluster:
        shown_start(cluster.named(job), redeploy(job, checkpoints, cluster))


command = click.Command(
    "resume",
    callback=resume,
    params=[
        click.Argument(["job"]),
        click.Option(["--checkpoints"], required=True, help="The folder or URI of its checkpoints."),
        address_option(),
        namespace_option(),
    ],
    help="""Starts a detached run again, from its last checkpoint: one that was stopped, that has failed, or whose
    cluster was lost. Code and settings are those of its last `clonos run --detach`, which lie beside the checkpoints.
    This runs the code that it finds there, so give a folder that you trust.

    \b
    Examples:
      clonos resume hot-auctions --checkpoints s3://bucket/checkpoints --address 10.0.0.7:6379
    """,
)
