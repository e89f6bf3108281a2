"""``clonos status``: shows how a detached run is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster
from clonos_py.cli.tables import show
from clonos_py.observe.units import bytes_text

_RECOVERIES_SHOWN = 5


def status(job: str, address: str | None, namespace: str | None, as_json: bool) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.asking import answer
    from clonos_py.runtime.ray.detached import the_driver_of

    with on_cluster(address, namespace) as cluster:
        found = answer(the_driver_of(cluster.named(job)).job)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(
        f"{job} is {found['state']} since {found['since']} UTC" + (f": {found['error']}" if found["error"] else "")
    )
    if "vertices" in found:
        _show(found)


def _show(job: Mapping[str, Any]) -> None:
    headings = ("operator", "tasks", "rows in/s", "rows in", "lag", "busy", "held back")
    show("operators", headings, [_vertex(vertex) for vertex in job["vertices"]])
    processes = ("task", "role", "memory", "state", "retained")
    show("processes", processes, [_process(process) for process in job["tasks"]])
    for line in _lines(job):
        click.echo(line)


def _vertex(vertex: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        vertex["name"],
        str(vertex["parallelism"]),
        f"{vertex['rows_in_per_s']:,.0f}",
        f"{vertex['rows_in']:,}",
        "" if vertex["lag_s"] is None else f"{vertex['lag_s']:,.1f} s",
        _share(vertex["busy"]),
        _share(vertex["held_back"]),
    )


def _process(process: Mapping[str, Any]) -> tuple[str, ...]:
    state = sum(size["bytes"] for size in process["state"].values())
    return (
        process["task"],
        process["role"],
        bytes_text(process["resident_bytes"]),
        bytes_text(state),
        bytes_text(process["in_flight_bytes"] + process["spilled_bytes"]),
    )


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _lines(job: Mapping[str, Any]) -> Iterator[str]:
    checkpoints = job["checkpoints"]
    if checkpoints["last"]:
        last = checkpoints["last"][-1]
        size = bytes_text(last["bytes"])
        yield f"checkpoint {last['checkpoint']} was complete after {last['duration_ms']:,.0f} ms, {size}"
    yield f"checkpoints: {checkpoints['completed']} completed, {checkpoints['aborted']} aborted"
    for recovery in job["recoveries"][-_RECOVERIES_SHOWN:]:
        steps = (f"{s['step']} after {s['after_ms']:,.0f} ms" for s in recovery["steps"] if s["after_ms"] is not None)
        yield f"{recovery['time']} {recovery['task']} failed ({recovery['how']}): {', '.join(steps)}"
    yield from job["news"]


command = click.Command(
    "status",
    callback=status,
    params=[
        click.Argument(["job"]),
        address_option(),
        namespace_option(),
        click.Option(["--json", "as_json"], is_flag=True, help="All of it, as /api/v1/job of --web has it."),
    ],
    help="""Shows how a detached run is: rates, lag and back-pressure of its operators, memory and state of its
    processes, checkpoints, and how it recovered from failures.

    \b
    Examples:
      clonos status hot-auctions
      clonos status hot-auctions --address 10.0.0.7:6379 --json
    """,
)
