"""What the commands for detached runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from clonos_py.model.errors import ClusterError

if TYPE_CHECKING:  # help answers before these are imported
    from clonos_py.runtime.ray.cluster import Cluster

ADDRESS_HELP = "The Ray cluster; without it RAY_ADDRESS, else the one on this machine."


def address_option() -> click.Option:
    """The option for the cluster."""
    return click.Option(["--address"], help=ADDRESS_HELP)


@contextmanager
def on_cluster(address: str | None) -> Iterator[Cluster]:
    """Connected to the cluster at the address, else to the one that is here. Raises SettingError or ClusterError."""
    from clonos_py.cli.options import resolved
    from clonos_py.runtime.ray.cluster import address_here, connected

    given = resolved({}, {"address": address}).address
    with connected(given or address_here()) as cluster:
        yield cluster


def shown_start(job: str, driver: Any) -> None:
    """Shows the lines of a run until it is deployed. Raises ClusterError if it has failed before."""
    from clonos_py.runtime.ray.detached import followed, state_of

    try:
        for line in followed(driver, lambda state: state.state == "starting"):
            click.echo(line, err=True)
    except KeyboardInterrupt:
        click.echo(f"{job} starts without this command; `clonos stop {job}` stops it", err=True)
        raise
    state = state_of(driver)
    if state is not None and state.error is not None:
        raise ClusterError(f"the job {job!r} has failed: {state.error}")
    click.echo(f"{job} runs; `clonos status {job}` shows how it is, `clonos stop {job}` stops it")
