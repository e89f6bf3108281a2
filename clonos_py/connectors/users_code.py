"""Calls of a connector that a user has written: what it raises is named after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.model.errors import ClonosError, SinkError, SourceError, UserCodeError
from clonos_py.model.places import place_of


@contextmanager
def failures_of(what: str, kind: type[SourceError] | type[SinkError]) -> Iterator[None]:
    """Raises what the code below raises as an error of ``kind`` that names ``what`` and the line at work. Errors of
    the engine, such as a SourceError of the user's own, pass as they are."""
    try:
        yield
    except ClonosError as problem:
        if isinstance(problem, UserCodeError):
            raise kind(f"{what}: {problem}") from problem
        raise
    except Exception as problem:
        place = place_of(problem)
        at = f"; at {place}" if place else ""
        raise kind(f"{what} raised {type(problem).__name__}: {problem}{at}") from problem
