"""Base of readers of pushed rows, which their sender cannot be asked to send again.

The rows of each read are therefore written to the causal log, which downstream tasks hold (D4). There is one partition,
read by the first task; its offsets count received items.
"""

from __future__ import annotations

from clonos_py.connectors.malformed import RequestedColumns
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Source

READ_BYTES = 32 << 10
"""Rows from this much text are mostly at most 64 KiB; more would be written to storage with each read."""
WAIT_US = 1_000_000
_PORT_MAX = 65_535


def check_port(source: str, port: object) -> None:
    """Raises GraphError for a value that is not a port."""
    if not isinstance(port, int) or not 0 < port <= _PORT_MAX:
        raise GraphError(f"{source}: {port!r} is not a port: it must be from 1 to {_PORT_MAX}")


class PushedRowsReader(Source):
    """Base of such readers. ``rows_max``: the limit of the next read, None for no limit."""

    logs_rows = True
    consumes = True

    def __init__(self, requested: RequestedColumns, read_rows: int | None) -> None:
        self.requested = requested
        self._read_rows = self.rows_max = read_rows

    def open(self, index: int, parallelism: int) -> None:
        self.reads = index == 0
        """Whether this task reads."""

    def limit(self, rows: int) -> None:
        self.rows_max = rows if self._read_rows is None else min(rows, self._read_rows)

    @property
    def no_rows(self) -> tuple[None, ...]:
        """The ports of a read without rows."""
        return (None,) * self.requested.count
