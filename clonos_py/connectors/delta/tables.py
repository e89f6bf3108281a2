"""Delta tables by path or URI, and what errors of the library mean."""

from __future__ import annotations

import re

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from clonos_py.model.errors import one_line
from clonos_py.model.object_uris import names_objects

_DRAWN = re.compile(r"\x1b\[[0-9;]*m|\u21b3|Debug source.*|   0: <unknown>.*", re.DOTALL)
"""Colours, arrows and stacks in the texts of errors."""
_TEXT_MAX = 300


def options_of(place: str) -> dict[str, str] | None:
    """What the library needs beside the variables of the environment."""
    return {"allow_http": "true"} if names_objects(place) else None


def opened(place: str, version: int | None = None) -> DeltaTable | None:
    """The table, or None if there is none. Raises what the library does."""
    try:
        return DeltaTable(place, version=version, storage_options=options_of(place))
    except TableNotFoundError:
        return None


def reason(error: Exception) -> str:
    """What an error of the library says, in one line."""
    text = str(error)
    drawn = _DRAWN.search(text)
    if drawn is not None and drawn[0].startswith(("Debug", "   0")):
        text = text[: drawn.start()]
    return one_line(_DRAWN.sub("", text))[:_TEXT_MAX]
