"""``clonos rescale``: has a detached run go on at another parallelism."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from clonos_py.cli.detached_runs import address_option, namespace_option, on_cluster


class TasksParam(click.ParamType[tuple[str | None, int]]):
    """A number of tasks, of one operator or of all that ask for none."""

    name = "[OPERATOR=]TASKS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str | None, int]:
        operator, equals, tasks = str(value).rpartition("=")
        if not tasks.isdecimal() or int(tasks) < 1 or (equals and not operator):
            self.fail(f"{value!r} is neither a number of tasks, such as 4, nor that of an operator, such as join=4")
        return operator or None, int(tasks)


def rescale(
    job: str, parallelism: tuple[tuple[str | None, int], ...], address: str | None, namespace: str | None
) -> None:
    """The body of the command."""
    from clonos_py.runtime.ray.detached import rescale, the_driver_of

    default = next((tasks for operator, tasks in reversed(parallelism) if operator is None), None)
    operators = {operator: tasks for operator, tasks in parallelism if operator is not None}
    with on_cluster(address, namespace) as cluster:
        pause_s = rescale(job, the_driver_of(cluster.named(job)), default, operators, partial(click.echo, err=True))
    click.echo(f"{job} runs with {_named(default, operators)}, after a pause of {pause_s:.1f} s")


def _named(default: int | None, operators: dict[str, int]) -> str:
    of_each = [f"{default} tasks of each operator"] if default is not None else []
    return ", ".join([*of_each, *(f"{tasks} tasks of {operator}" for operator, tasks in operators.items())])


command = click.Command(
    "rescale",
    callback=rescale,
    params=[
        click.Argument(["job"]),
        click.Option(
            ["--parallelism"],
            type=TasksParam(),
            multiple=True,
            required=True,
            help="How many tasks run each operator, or the operator of this name; may be given several times.",
        ),
        address_option(),
        namespace_option(),
    ],
    help="""Has a detached run go on at another parallelism. The processes for it start, and load its newest
    checkpoint, while the job runs. Then it takes a last checkpoint and goes on from there in the new processes: it
    pauses for as long as that takes. If it cannot start, it goes on as before.

    \b
    Examples:
      clonos rescale hot-auctions --parallelism 8
      clonos rescale hot-auctions --parallelism join=4 --parallelism source=2
    """,
)
