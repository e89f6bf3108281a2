"""What a check says of a rule that is broken: which one, what was seen, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

_SHOWN = 3


class Rule(NamedTuple):
    """Of a contract. ``remedy``: what usually mends it."""

    text: str
    remedy: str


def broken(connector: object, rule: Rule, seen: str) -> NoReturn:
    """Raises the AssertionError."""
    raise AssertionError(f"{type(connector).__name__} breaks the rule '{rule.text}': {seen}. Remedy: {rule.remedy}")


@contextmanager
def holding(connector: object, rule: Rule) -> Iterator[None]:
    """Whatever the connector raises below breaks the rule."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as problem:
        raise AssertionError(
            f"{type(connector).__name__} breaks the rule '{rule.text}': it raised {type(problem).__name__}: {problem}. "
            f"Remedy: {rule.remedy}"
        ) from problem


def differing(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """What is wrong with rows, for people."""
    return f"{_counted(missing, 'missing')}, {_counted(surplus, 'too many')}"


def _counted(rows: Sequence[str], what: str) -> str:
    shown = f", such as {', '.join(rows[:_SHOWN])}" if rows else ""
    return f"{len(rows)} rows are {what}{shown}"
