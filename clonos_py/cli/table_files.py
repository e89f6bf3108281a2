"""Tables that commands answer with: printed, as JSON, or as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow as pa

from clonos_py.cli.result_files import replaced
from clonos_py.cli.tables import show
from clonos_py.model.errors import SettingError
from clonos_py.model.moments import shown_rows

FORMATS = (".parquet", ".csv", ".jsonl")
_TEXT_MAX = 60


def check_format(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Checks, before anything is read, that the name of a file shows its format."""
    if path is not None and path.suffix not in FORMATS:
        raise click.BadParameter(f"{path} must end with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return path


def print_table(title: str, table: pa.Table, rows_max: int) -> None:
    """Prints the first rows of a table, and how many there are."""
    shown = min(table.num_rows, rows_max)
    every = f"{table.num_rows} row{'s' if table.num_rows != 1 else ''}"
    of = every if shown == table.num_rows else f"{shown} of {every}"
    values = (list(map(_text, row.values())) for row in rows_of(table, rows_max))
    click.echo(f"{title}: {of}")
    if table.num_rows:
        show(None, table.column_names, values)


def rows_of(table: pa.Table, rows_max: int | None = None) -> Iterator[dict[str, Any]]:
    """The rows as Python values; values that Python does not have are text."""
    for batch in table.slice(0, rows_max).to_batches():
        yield from shown_rows(batch)


def json_of(value: Any) -> str:
    """As JSON: times and decimals as text, bytes in base64."""
    return msgspec.json.encode(value).decode()


def write_table(table: pa.Table, path: Path) -> None:
    """Writes all rows to a file in the format that its name shows. CSV has nested values as JSON. Raises SettingError
    if the file cannot be written."""
    from pyarrow import csv, parquet

    with replaced(path) as part:
        match path.suffix:
            case ".parquet":
                parquet.write_table(table, str(part))
            case ".csv":
                csv.write_csv(_flat(table), str(part))
            case ".jsonl":
                with part.open("w", encoding="utf-8") as file:
                    file.writelines(f"{json_of(row)}\n" for row in rows_of(table))
            case _:
                raise SettingError(f"{path} must end with one of {', '.join(FORMATS)}")


def _flat(table: pa.Table) -> pa.Table:
    columns: Sequence[Any] = [
        pa.array([None if value is None else json_of(value) for value in column.to_pylist()], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))


def _text(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json_of(value).strip('"')
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."
