"""Calls of user-written connectors: errors that they raise are attributed to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.model.errors import ClonosError, SinkError, SourceError, UserCodeError, type_and_text
from clonos_py.model.places import place_of


@contextmanager
def failures_of(what: str, kind: type[SourceError] | type[SinkError]) -> Iterator[None]:
    """Converts errors of the code inside to errors of ``kind`` that name ``what`` and the failing line. Errors of the
    engine, such as a SourceError that the user raises, pass unchanged."""
    try:
        yield
    except ClonosError as problem:
        if isinstance(problem, UserCodeError):
            raise kind(f"{what}: {problem}") from problem
        raise
    except Exception as problem:
        place = place_of(problem)
        at = f"; at {place}" if place else ""
        raise kind(f"{what} raised {type_and_text(problem)}{at}") from problem
