"""What the commands for detached runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.model.errors import ClusterError
from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.settings.definitions import DEFAULT, Settings

if TYPE_CHECKING:  # help answers before these are imported
    from clonos_py.runtime.ray.cluster import Cluster, JobName

ADDRESS_HELP = "The Ray cluster; without it RAY_ADDRESS, else the one on this machine."


def address_option() -> click.Option:
    """The option for the cluster."""
    return click.Option(["--address"], help=ADDRESS_HELP)


def namespace_option() -> click.Option:
    """The option for the namespace, which is also a setting of runs."""
    return setting_options("namespace")[0]


def namespace_given(settings: Settings) -> str | None:
    """The namespace, if one was given."""
    return settings.namespace if settings.origin("namespace") != DEFAULT else None


@contextmanager
def on_cluster(address: str | None, namespace: str | None) -> Iterator[Cluster]:
    """Connected to the cluster at the address, else to the one that is here, for the jobs of a namespace. Raises
    SettingError or ClusterError."""
    from clonos_py.runtime.ray.cluster import address_here, connected

    given = resolved({}, {"address": address, "namespace": namespace})
    with connected(given.address or address_here(), given.namespace) as cluster:
        yield cluster


def shown_start(name: JobName, driver: Any) -> None:
    """Shows the lines of a run until it is deployed. Raises ClusterError if it has failed before."""
    from clonos_py.runtime.ray.detached import followed, state_of

    job, namespace = name
    words = job if namespace == DEFAULT_NAMESPACE else f"{job} --namespace {namespace}"
    try:
        for line in followed(driver, lambda state: state.state == "starting"):
            click.echo(line, err=True)
    except KeyboardInterrupt:
        click.echo(f"{job} starts without this command; `clonos stop {words}` stops it", err=True)
        raise
    state = state_of(driver)
    if state is not None and state.error is not None:
        raise ClusterError(f"the job {job!r} has failed: {state.error}")
    click.echo(f"{job} runs; `clonos status {words}` shows how it is, `clonos stop {words}` stops it")
