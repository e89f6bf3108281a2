"""Prints tables of figures, with the same width on a terminal and in a file."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

_WIDTH = 120


def show(title: str | None, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints a table, under a title as wide as itself if it is given. ``rows`` may be computed during iteration."""
    table = Table(*headings, box=None, title=title, title_justify="left", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(width=_WIDTH).print(table)
