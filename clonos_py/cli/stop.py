"""``clonos stop``: stops a job that another process runs, here or on a cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from clonos_py.cli.detached_runs import namespace_given, namespace_option
from clonos_py.cli.options import resolved
from clonos_py.cli.quantities import DurationParam
from clonos_py.dsl.runs import STOP_TIMEOUT_S
from clonos_py.model.errors import ClusterError, SettingError
from clonos_py.runtime.run_control import Ended, local_runs

if TYPE_CHECKING:  # help answers before this is imported
    from clonos_py.runtime.ray.cluster import JobName

_STOPPING = "stopping {!r}: it takes a last checkpoint and commits it"
_TIMEOUT = f"{STOP_TIMEOUT_S:g}s"


def stop(
    job: str,
    address: str | None,
    namespace: str | None,
    timeout: int,
    savepoint: str | None,
    checkpoints: str | None,
) -> None:
    """The body of the command. ``timeout``: microseconds."""
    if savepoint is None and checkpoints is not None:
        raise click.UsageError("--checkpoints goes with --savepoint")
    given = resolved({}, {"address": address, "namespace": namespace})
    kept = None
    if savepoint is not None:
        from clonos_py.cli.stop_savepoint import StopSavepoint

        kept = StopSavepoint(job, savepoint, checkpoints, given.address, given.namespace)
    began_s = time.monotonic()
    runs = [run for run in local_runs() if run.job == job and run.is_at(given.address, namespace_given(given))]
    if len(runs) > 1:
        pids = ", ".join(str(run.described.pid) for run in runs)
        raise SettingError(f"several runs here have a job named {job!r}: send SIGTERM to one of the processes {pids}")
    if runs:
        click.echo(_STOPPING.format(job))
        ended = runs[0].stop(timeout / 1_000_000)
    else:
        ended = _stopped_on_ray(job, given.address, given.namespace, timeout)
    if has_stopped(job, ended):
        took_s = time.monotonic() - began_s
        click.echo(f"stopped after {took_s:.1f} s; the next run with its checkpoints goes on from there")
        if kept is not None:
            kept.keep()


def has_stopped(job: str, ended: Ended | None) -> bool:
    """Whether the job has stopped with a last checkpoint; says so if it had finished before. Raises ClusterError if it
    has ended in another way."""
    if ended is None:
        raise ClusterError(f"the job {job!r} is gone without an answer: its own terminal says how it has ended")
    if ended.error is not None:
        raise ClusterError(f"the job {job!r} has ended before its last checkpoint: {ended.error}")
    if not ended.stopped:
        click.echo("finished: its sources have ended meanwhile")
    return ended.stopped


def _stopped_on_ray(job: str, address: str | None, namespace: str, timeout: int) -> Ended | None:
    from clonos_py.runtime.ray.cluster import address_here, connected

    try:
        found = address or address_here()
    except SettingError as error:
        running = ", ".join(repr(run.job) for run in local_runs()) or "none"
        raise SettingError(f"no job named {job!r} runs here; running: {running}; {error}") from error
    with connected(found, namespace) as cluster:
        return stop_on_cluster(cluster.named(job), timeout / 1_000_000)


def stop_on_cluster(name: JobName, timeout_s: float) -> Ended | None:
    """Stops the job on the cluster to which this process is connected. None if it is gone without an answer. Raises
    SettingError or ClusterError."""
    from clonos_py.runtime.ray.detached import await_coordinator
    from clonos_py.runtime.ray.stopping import coordinator_of, stop_run

    await_coordinator(name)
    coordinator = coordinator_of(name)
    click.echo(_STOPPING.format(name.job))
    end = stop_run(name, coordinator, timeout_s)
    return None if end is None else Ended(end.stopped, None if end.error is None else end.message)


command = click.Command(
    "stop",
    callback=stop,
    params=[
        click.Argument(["job"]),
        click.Option(["--address"], help="The Ray cluster of the run, if it was started on another machine."),
        namespace_option(),
        click.Option(
            ["--timeout"], type=DurationParam(), default=_TIMEOUT, help=f"How long to wait.  [default: {_TIMEOUT}]"
        ),
        click.Option(["--savepoint"], metavar="NAME", help="Keep the last checkpoint as a savepoint of this name."),
        click.Option(["--checkpoints"], help="For --savepoint: the job's checkpoints; a detached run knows them."),
    ],
    help="""Stops a running job, with a last checkpoint that is committed.

    JOB is the name of the job, which is that of its Job(...). Rows that its sinks have received are visible then, and
    the next run with the same --checkpoints goes on from there. A run that was started on this machine is found by its
    name, with any runtime. One that was started elsewhere needs the address of its cluster, or RAY_ADDRESS.

    \b
    Examples:
      clonos stop hot_auctions
      clonos stop hot_auctions --address 10.0.0.7:6379 --timeout 5m
      clonos stop hot_auctions --savepoint before-upgrade
    """,
)
