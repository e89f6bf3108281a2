"""The inputs of a process function as values, created by the DSL and read by the planner and the operator."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from clonos_py.model.record import Record


@dataclass(frozen=True)
class ProcessInput:
    """One input of a process function. ``key``: the columns by which rows are keyed. ``row_type``: the class that rows
    are passed as (None: records with all columns). ``time_column``: the column of their event time. ``broadcast``: it
    has no key, and every task gets all of its rows."""

    key: pa.Schema
    row_type: type[Record] | None
    time_column: str | None = None
    broadcast: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(self.key.names)
