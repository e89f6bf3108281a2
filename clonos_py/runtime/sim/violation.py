"""The error for a broken invariant of a run."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant that must hold at every step does not hold."""


def check(holds: bool, complaint: str) -> None:
    """Raises Violation unless ``holds``. Code that runs for every frame should test and raise itself: to format the
    complaint takes longer than the check."""
    if not holds:
        raise Violation(complaint)
