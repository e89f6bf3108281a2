"""Error messages of the checks: which rule is broken, what was observed, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from clonos_py.model.errors import type_and_text

_SHOWN = 3


class Rule(NamedTuple):
    """A rule of a contract. ``remedy``: what usually fixes a violation."""

    text: str
    remedy: str


def broken(connector: object, rule: Rule, seen: str) -> NoReturn:
    """Raises the AssertionError for a broken rule."""
    raise AssertionError(f"{type(connector).__name__} breaks the rule '{rule.text}': {seen}. Remedy: {rule.remedy}")


@contextmanager
def holding(connector: object, rule: Rule) -> Iterator[None]:
    """Reports any exception of the connector in this block as a violation of the rule."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as problem:
        raise AssertionError(
            f"{type(connector).__name__} breaks the rule '{rule.text}': it raised {type_and_text(problem)}. "
            f"Remedy: {rule.remedy}"
        ) from problem


def differing(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """Describes missing and surplus rows."""
    return f"{_counted(missing, 'missing')}, {_counted(surplus, 'too many')}"


def _counted(rows: Sequence[str], what: str) -> str:
    shown = f", such as {', '.join(rows[:_SHOWN])}" if rows else ""
    return f"{len(rows)} rows are {what}{shown}"
