"""What is raised where something that must hold at every step of a run does not."""

from __future__ import annotations


class Violation(AssertionError):
    """Something that must hold at every step did not."""


def check(holds: bool, complaint: str) -> None:
    """Where it is called for every frame, raise instead: the complaint takes longer to write than the check."""
    if not holds:
        raise Violation(complaint)
