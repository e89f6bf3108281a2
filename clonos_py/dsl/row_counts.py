"""Numbers of rows that users give to verbs."""

from __future__ import annotations

from clonos_py.model.errors import GraphError


def check_row_count(name: str, number: object) -> None:
    """Raises GraphError unless the argument ``name`` is a whole number of at least 1."""
    if type(number) is not int or number < 1:
        raise GraphError(f"{name} is {number!r}: it must be a number of rows, at least 1")
