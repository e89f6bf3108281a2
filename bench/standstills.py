"""Whether a coordinator that stood still has replaced a task to which nothing was done. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

_AFTER_S = 0.8
"""So long after it woke up a failure counts as caused by the standstill: nothing else is done in that time."""
_BEFORE_S = 20.0
"""A process that was harmed so long before may fail now, and its failure be noticed late."""


class Moment(NamedTuple):
    """Something that happened to a task; an empty name means every task."""

    at_s: float
    task: str


class Standstill(NamedTuple):
    """When the coordinator was stopped, and when it was woken."""

    stopped_s: float
    woken_s: float


def caused(standstills: Sequence[Standstill], harmed: Collection[Moment], failed: Collection[Moment]) -> list[str]:
    """The tasks that failed because of a standstill, in words."""
    return [
        f"{failure.task} was replaced since the coordinator stood still for {still.woken_s - still.stopped_s:.1f} s"
        for still in standstills
        for failure in failed
        if still.stopped_s <= failure.at_s <= still.woken_s + _AFTER_S
        and not any(
            harm.task in ("", failure.task) and still.stopped_s - _BEFORE_S <= harm.at_s <= failure.at_s
            for harm in harmed
        )
    ]
