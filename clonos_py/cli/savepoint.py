"""``clonos savepoint``: keeps checkpoints under names, lists, copies and deletes them."""

from __future__ import annotations

import click

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_jobs import existing_job
from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster
from clonos_py.cli.tables import show


def create(job: str, name: str, address: str | None, namespace: str | None) -> None:
    """Keeps the last complete checkpoint of a job that runs on a Ray cluster."""
    from clonos_py.runtime.ray.asking import keep_savepoint

    with on_cluster(address, namespace) as cluster:
        checkpoint = keep_savepoint(cluster.named(job), name)
    click.echo(kept_text(job, name, checkpoint))


def kept_text(job: str, name: str, checkpoint: int) -> str:
    """Says that a checkpoint of a job is kept under a name."""
    return f"savepoint {name!r} is checkpoint {checkpoint} of {job!r}"


def ls(job: str, checkpoints: str) -> None:
    """Lists the savepoints of a job."""
    found = CheckpointStore(checkpoints, existing_job(checkpoints, job)).savepoints()
    rows = [
        (name, str(manifest.checkpoint), ", ".join(f"{vertex} {n}" for vertex, n in manifest.parallelism.items()))
        for name, manifest in sorted(found.items(), key=lambda item: item[1].checkpoint)
    ]
    if rows:
        show(f"savepoints of {job!r}", ("name", "checkpoint", "tasks"), rows)
    else:
        click.echo(f"{job!r} has no savepoint in {checkpoints}")


def rm(job: str, name: str, checkpoints: str) -> None:
    """Deletes a savepoint."""
    CheckpointStore(checkpoints, existing_job(checkpoints, job)).remove_savepoint(name)
    click.echo("deleted; its files go when the job's next checkpoint is complete")


def copy(job: str, name: str, target: str, checkpoints: str) -> None:
    """Copies a savepoint into a checkpoint folder of its own."""
    store = CheckpointStore(checkpoints, existing_job(checkpoints, job))
    store.copy(store.savepoint(name), CheckpointStore(target, job))
    click.echo(f"copied: `clonos run FILE --checkpoints {target}` goes on from savepoint {name!r}")


def _checkpoints() -> click.Option:
    return click.Option(["--checkpoints"], required=True, help="The folder or URI of the job's checkpoints.")


command = click.Group(
    "savepoint",
    help="""Keeps checkpoints under names, until they are deleted.

    A savepoint is a complete checkpoint that stays. A copy of it is a checkpoint folder of its own, with all that it
    needs, from which any run of the job can go on: to try a change on real state, or to go back.

    \b
    Examples:
      clonos savepoint create hot-auctions before-upgrade
      clonos savepoint ls hot-auctions --checkpoints /data/checkpoints
      clonos savepoint copy hot-auctions before-upgrade /data/trial --checkpoints /data/checkpoints
      clonos savepoint rm hot-auctions before-upgrade --checkpoints /data/checkpoints
    """,
)
command.add_command(
    click.Command(
        "create",
        callback=create,
        params=[click.Argument(["job"]), click.Argument(["name"]), address_option(), namespace_option()],
        help="Keeps the last complete checkpoint of JOB, which runs on a Ray cluster, as NAME.",
    )
)
command.add_command(
    click.Command(
        "ls", callback=ls, params=[click.Argument(["job"]), _checkpoints()], help="Lists the savepoints of JOB."
    )
)
command.add_command(
    click.Command(
        "copy",
        callback=copy,
        params=[click.Argument(["job"]), click.Argument(["name"]), click.Argument(["target"]), _checkpoints()],
        help="Copies savepoint NAME of JOB into the checkpoint folder TARGET, which must have no checkpoints of JOB.",
    )
)
command.add_command(
    click.Command(
        "rm",
        callback=rm,
        params=[click.Argument(["job"]), click.Argument(["name"]), _checkpoints()],
        help="Deletes savepoint NAME of JOB.",
    )
)
