"""Hidden columns: columns that the engine computes beside those of a stream, such as the input of an aggregate, sort
keys, key groups, partial results and the event time of a window's result. They are not visible in rows or plans.

Their names begin with a character with which no column of a user may begin. So they never collide with those of users.
The names of further columns for one operator, such as ``hidden("input:total")`` for the aggregate ``total``, contain a
colon. So they collide neither with each other nor with the fixed ones, such as ``hidden("rows")``.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos_py.model.errors import GraphError

_PREFIX = "~"


def hidden(name: str, taken: Iterable[str] = ()) -> str:
    """The name of a hidden column, different from those in ``taken``."""
    found = _PREFIX + name
    while found in taken:
        found = _PREFIX + found
    return found


def is_hidden(column: str) -> bool:
    return column.startswith(_PREFIX)


def check_names(names: Iterable[str], what: str) -> None:
    """Raises GraphError if columns of a user have the name of a hidden column, or two of them the same name. ``what``:
    what has these columns."""
    seen: set[str] = set()
    for name in names:
        if is_hidden(name):
            raise GraphError(
                f"{what} has a column {name!r}: names that begin with {_PREFIX!r} are for columns that clonos-py adds; "
                f"call it {name.lstrip(_PREFIX) or 'column'!r}, or leave it out"
            )
        if name in seen:
            raise GraphError(f"{what} has two columns {name!r}: give one of them another name, or leave one out")
        seen.add(name)
