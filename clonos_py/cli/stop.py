"""``clonos stop``: stops a job that another command runs on a cluster."""

from __future__ import annotations

import time

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.dsl.runs import STOP_TIMEOUT_S
from clonos_py.model.errors import ClusterError, SettingError
from clonos_py.settings.kinds import DURATION

_TIMEOUT = f"{STOP_TIMEOUT_S:g}s"


class _Duration(click.ParamType[int]):
    name = DURATION.metavar

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return DURATION.parse(value)
        except SettingError as error:
            self.fail(str(error), param, ctx)


def stop(job: str, address: str | None, timeout: int) -> None:
    """The body of the command. ``timeout``: microseconds."""
    from clonos_py.runtime.ray.cluster import address_here, connected
    from clonos_py.runtime.ray.stopping import coordinator_of, stop_run

    with connected(resolved({}, {"address": address}).address or address_here()):
        coordinator = coordinator_of(job)
        click.echo(f"stopping {job!r}: it takes a last checkpoint and commits it")
        began_s = time.monotonic()
        end = stop_run(job, coordinator, timeout / 1_000_000)
        took_s = time.monotonic() - began_s
    if end is None:
        raise ClusterError(f"the job {job!r} is gone without an answer: its own terminal says how it has ended")
    if end.error is not None:
        raise ClusterError(f"the job {job!r} has ended before its last checkpoint: {end.message}")
    if end.stopped:
        click.echo(f"stopped after {took_s:.1f} s; the next run with its checkpoints goes on from there")
    else:
        click.echo("finished: its sources have ended meanwhile")


command = click.Command(
    "stop",
    callback=stop,
    params=[
        click.Argument(["job"]),
        *setting_options("address"),
        click.Option(
            ["--timeout"], type=_Duration(), default=_TIMEOUT, help=f"How long to wait.  [default: {_TIMEOUT}]"
        ),
    ],
    help="""Stops a job that runs on a cluster, with a last checkpoint that is committed.

    JOB is the name of the job, which is that of its Job(...). Rows that its sinks have received are visible then, and
    the next run with the same --checkpoints goes on from there. Without an address the cluster is that of RAY_ADDRESS,
    or the one that runs on this machine.

    \b
    Examples:
      clonos stop hot_auctions
      clonos stop hot_auctions --address 10.0.0.7:6379 --timeout 5m
    """,
)
