"""Names and types of the columns that tables of state have in addition to those of the job."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

MOMENT = pa.timestamp("us", "UTC")
WINDOW_ROWS = "window_rows"
"""The number of rows that a count window has so far."""


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with as many underscores behind it as it takes to differ from those of the job's columns."""
    while name in taken:
        name += "_"
    return name
