"""``clonos list``: lists the jobs that run on a Ray cluster."""

from __future__ import annotations

import json

import click

from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster
from clonos_py.cli.tables import show


def list_runs(address: str | None, namespace: str | None, as_json: bool, orphans: bool, remove: bool) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.actor_registry import end_processes
    from clonos_py.runtime.ray.detached import attached_runs, detached_runs
    from clonos_py.runtime.ray.detached import orphans as found_orphans

    if remove and not orphans:
        raise click.UsageError("--remove goes with --orphans")
    with on_cluster(address, namespace) as cluster:
        if orphans:
            names = found_orphans(cluster.namespace)
            if remove:
                end_processes(names, cluster.namespace)
            for name in names:
                click.echo(name)
            if not as_json:
                found = "no process is without a driver" if not names else f"{len(names)} processes without a driver"
                click.echo(f"{found}{', ended' if remove and names else ''}", err=True)
            return
        detached, attached = detached_runs(cluster.namespace), attached_runs(cluster.namespace)
    rows = [
        (name, state.state, state.since, state.checkpoints, state.error or "")
        if state
        else (name, "restarting", "", "", "")
        for name, state in detached
    ]
    rows += [(name, "running, attached", "", "", "") for name in attached]
    headings = ("job", "state", "since (UTC)", "checkpoints", "error")
    if as_json:
        keys = ("job", "state", "since", "checkpoints", "error")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
    elif rows:
        show("jobs", headings, rows)
    else:
        click.echo("no job runs on this cluster")


command = click.Command(
    "list",
    callback=list_runs,
    params=[
        address_option(),
        namespace_option(),
        click.Option(["--json", "as_json"], is_flag=True, help="As JSON."),
        click.Option(["--orphans"], is_flag=True, help="List processes whose run has no driver any more."),
        click.Option(["--remove"], is_flag=True, help="End these processes."),
    ],
    help="""Lists the jobs that run on a Ray cluster: detached runs, also those that have ended within the last hour,
    and runs whose driver is the process of a command.

    \b
    Examples:
      clonos list --address 10.0.0.7:6379
      clonos list --orphans
    """,
)
