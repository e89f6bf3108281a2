"""What a process function is run with, as a value. The DSL makes it, the planner and the operator read it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from clonos_py.model.record import Record


@dataclass(frozen=True)
class ProcessInput:
    """One of its inputs. ``key``: the columns by which rows are keyed. ``row_type``: as what they are given (None: as
    records with all columns). ``time_column``: where their event time is."""

    key: pa.Schema
    row_type: type[Record] | None
    time_column: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key's columns."""
        return tuple(self.key.names)
