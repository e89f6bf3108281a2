"""``clonos state``: shows what the checkpoints of a job hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.checkpoint.stored_jobs import only_job
from clonos_py.cli.options import file_in_a_folder, resolved, setting_options
from clonos_py.cli.table_files import check_format, json_of, print_table, rows_of, write_table
from clonos_py.cli.tables import show
from clonos_py.model.errors import SettingError
from clonos_py.observe.units import bytes_text
from clonos_py.stored_state.queries import of_keys
from clonos_py.stored_state.reading import ReplacedCheckpointError, StoredState, read_state

T = TypeVar("T")

_TRIES = 5
_ANSWER = "answer"


@click.pass_context
def ls(
    ctx: click.Context, /, job: str | None, at: str | None, by: str, live: bool, as_json: bool, **parameters: Any
) -> None:
    """The body of ``clonos state ls``."""
    folder, job = _folder(job, parameters)
    state, sizes = _read(folder, job, at, lambda found: found.sizes(by.replace("-", "_"), live=live))
    if as_json:
        click.echo(json_of({"job": state.job, "checkpoint": state.checkpoint, "sizes": list(rows_of(sizes))}))
        return
    rows = (
        [bytes_text(value) if name.endswith("_bytes") else str(value) for name, value in row.items()]
        for row in rows_of(sizes)
    )
    names = [name.replace("_", " ") for name in sizes.column_names]
    show(f"state of {state.job!r} at checkpoint {state.checkpoint}", names, rows)
    whole = "live_bytes" if by == "key-group" else "stored_bytes"
    click.echo(f"\nall {whole.replace('_', ' ')}: {bytes_text(int(pc.sum(sizes.column(whole)).as_py() or 0))}")


@click.pass_context
def show_operator(
    ctx: click.Context,
    /,
    operator: str,
    job: str | None,
    at: str | None,
    table: str | None,
    key: Sequence[str],
    sql: str | None,
    key_group: bool,
    heaviest: int | None,
    by: str,
    rows: int,
    as_json: bool,
    out: Path | None,
    **parameters: Any,
) -> None:
    """The body of ``clonos state show``."""
    if sum((sql is not None, heaviest is not None, bool(key))) > 1:
        raise click.UsageError("give one of --key, --sql and --heaviest")

    def read(state: StoredState) -> dict[str, pa.Table]:
        if heaviest is not None:
            return {"heaviest keys": state.heaviest(operator, heaviest, by)}
        if sql is not None:
            return {_ANSWER: state.sql(operator, sql)}
        tables = state.tables(operator, key_group=key_group)
        if table is not None:
            tables = {table: state.table(operator, table, key_group=key_group)}
        return of_keys(tables, state.keys(operator), key) if key else tables

    folder, job = _folder(job, parameters)
    state, tables = _read(folder, job, at, read)
    _answer(f"{operator!r} at checkpoint {state.checkpoint}", tables, rows, as_json, out)
    if not as_json and state.is_in_parts(operator):
        click.echo("\nIts keys are saved one by one: each is as it was when it was saved, not as at the checkpoint.")


@click.pass_context
def diff(
    ctx: click.Context,
    /,
    old: str,
    new: str,
    job: str | None,
    operator: Sequence[str],
    rows: int,
    as_json: bool,
    out: Path | None,
    **parameters: Any,
) -> None:
    """The body of ``clonos state diff``."""
    folder, job = _folder(job, parameters)
    states = [read_state(folder, job, name) for name in (old, new)]
    names = operator or [name for name in states[1].operators if name in states[0].operators]
    changes = {
        f"{name}.{table}" if table != "state" else name: found
        for name in names
        for table, found in states[0].changes(states[1], name).items()
    }
    if as_json or out is not None or operator:
        _answer(f"changes from {old} to {new}", changes, rows, as_json, out)
        return
    kinds = ("added", "removed", "after")
    counts = (
        [name, *(str(found.column(0).to_pylist().count(kind)) for kind in kinds)] for name, found in changes.items()
    )
    show(f"rows that differ from {old} to {new}", ("table", "added", "removed", "changed"), counts)
    for side, other in (states, states[::-1]):
        only = [name for name in side.operators if name not in other.operators]
        if only:
            click.echo(f"only at checkpoint {side.checkpoint}: {', '.join(only)}")


def _answer(title: str, tables: Mapping[str, pa.Table], rows: int, as_json: bool, out: Path | None) -> None:
    if out is not None:
        if len(tables) != 1:
            raise SettingError(f"--out takes one table: choose one of {', '.join(tables)} with --table or --operator")
        write_table(next(iter(tables.values())), out)
        return
    if as_json:
        found = {name: {"rows": table.num_rows, "values": list(rows_of(table, rows))} for name, table in tables.items()}
        click.echo(json_of(found))
        return
    for number, (name, table) in enumerate(tables.items()):
        if number:
            click.echo()
        print_table(f"{title}, {name}" if len(tables) > 1 or name not in ("state", _ANSWER) else title, table, rows)


def _folder(job: str | None, parameters: Mapping[str, Any]) -> tuple[str, str]:
    folder = resolved({}, parameters).checkpoints
    if folder is None:
        raise SettingError("there is no checkpoint folder: give --checkpoints")
    return folder, only_job(folder, job, "--job")


def _read(folder: str, job: str, at: str | None, read: Callable[[StoredState], T]) -> tuple[StoredState, T]:
    """Reads from a checkpoint. A running job may delete its newest one meanwhile, once there are newer ones: then from
    the newest one at that time."""
    for _ in range(_TRIES - 1):
        state = read_state(folder, job, at)
        try:
            return state, read(state)
        except ReplacedCheckpointError:
            if at is not None:
                raise
    state = read_state(folder, job, at)
    return state, read(state)


_PLACE = [
    *setting_options("checkpoints"),
    click.Option(["--job"], metavar="NAME", help="The job, if the folder has several."),
]
_AT = click.Option(
    ["--at"], metavar="CHECKPOINT", help="The number of a checkpoint, or a savepoint.  [default: the newest checkpoint]"
)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")
_ROWS = click.Option(
    ["--rows"], type=click.IntRange(0), default=20, show_default=True, help="How many rows of each table are printed."
)
_OUT = click.Option(
    ["--out"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=lambda ctx, param, path: file_in_a_folder(ctx, param, check_format(ctx, param, path)),
    help="Write all rows to FILE.parquet, FILE.csv or FILE.jsonl.",
)

command = click.Group(
    "state",
    commands=[
        click.Command(
            "ls",
            callback=ls,
            params=[
                *_PLACE,
                _AT,
                click.Option(
                    ["--by"],
                    type=click.Choice(["operator", "task", "key-group"]),
                    default="operator",
                    show_default=True,
                    help="What has a line.",
                ),
                click.Option(
                    ["--live"], is_flag=True, help="Count live rows of operators or tasks, too: reads all state."
                ),
                _JSON,
            ],
            help="""Lists the operators with state, with rows and bytes.

    Of operators and tasks these are stored rows and bytes, where rows that were replaced or deleted count until they
    are cleared away; with --live also live rows, and what they take in memory, as of key groups.

    \b
    Examples:
      clonos state ls --checkpoints checkpoints/
      clonos state ls --checkpoints s3://bucket/checkpoints --job hot_auctions --by task
    """,
        ),
        click.Command(
            "show",
            callback=show_operator,
            params=[
                click.Argument(["operator"]),
                *_PLACE,
                _AT,
                click.Option(["--table"], metavar="NAME", help="Only this table, where there are several."),
                click.Option(
                    ["--key"],
                    multiple=True,
                    metavar="[NAME=]VALUE",
                    help="Only rows with this key. Repeat it for further key columns.",
                ),
                click.Option(
                    ["--sql"], metavar="QUERY", help="A query (Polars' SQL) over the tables, such as 'state'."
                ),
                click.Option(["--key-group"], is_flag=True, help="Add the key group of each row."),
                click.Option(
                    ["--heaviest"], type=click.IntRange(1), metavar="N", help="The N keys with most bytes or rows."
                ),
                click.Option(
                    ["--by"],
                    type=click.Choice(["bytes", "rows"]),
                    default="bytes",
                    show_default=True,
                    help="By what --heaviest orders keys.",
                ),
                _ROWS,
                _JSON,
                _OUT,
            ],
            help="""Shows the state of an operator as tables, with the columns of the job.

    Windows have window_start and window_end, aggregates their names, process functions a column for each attribute and
    each timer. Joins have the tables left and right, most others have one, state.

    \b
    Examples:
      clonos state show totals --checkpoints checkpoints/ --key 42
      clonos state show totals --checkpoints checkpoints/ --sql 'select * from state order by price desc limit 5'
      clonos state show totals --checkpoints checkpoints/ --heaviest 10 --by rows
      clonos state show totals --checkpoints checkpoints/ --out totals.parquet
    """,
        ),
        click.Command(
            "diff",
            callback=diff,
            params=[
                click.Argument(["old"], metavar="A"),
                click.Argument(["new"], metavar="B"),
                *_PLACE,
                click.Option(
                    ["--operator"], multiple=True, metavar="NAME", help="Show the rows of this operator that differ."
                ),
                _ROWS,
                _JSON,
                _OUT,
            ],
            help="""Counts the rows in which two checkpoints differ, or shows them.

    A and B are numbers of checkpoints, or savepoints. A row of the same key and window is shown before and after its
    change, others as added or removed.

    \b
    Examples:
      clonos state diff 12 13 --checkpoints checkpoints/
      clonos state diff 12 before-upgrade --checkpoints checkpoints/ --operator totals
    """,
        ),
    ],
    help="Looks into the state of a job: any checkpoint or savepoint in its folder, also while it runs.",
)
