"""Finds tasks that a stopped coordinator has replaced although no fault was injected into them. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

_AFTER_S = 0.8
"""A failure within this time after the wake-up counts as caused by the standstill: no other fault is injected then."""
_BEFORE_S = 20.0
"""A fault within this time before the standstill may still cause a failure, since its detection may be late."""


class TaskEvent(NamedTuple):
    """The time of an event at a task. An empty name means every task."""

    at_s: float
    task: str


class Standstill(NamedTuple):
    """The times at which the coordinator was stopped and woken."""

    stopped_s: float
    woken_s: float


def failures_caused(
    standstills: Sequence[Standstill], harmed: Collection[TaskEvent], failed: Collection[TaskEvent]
) -> list[str]:
    """Describes each task that failed because of a standstill: during or shortly after one, and without a fault."""
    return [
        f"{failure.task} was replaced since the coordinator stood still for {still.woken_s - still.stopped_s:.1f} s"
        for still in standstills
        for failure in failed
        if still.stopped_s <= failure.at_s <= still.woken_s + _AFTER_S
        and not any(
            fault.task in ("", failure.task) and still.stopped_s - _BEFORE_S <= fault.at_s <= failure.at_s
            for fault in harmed
        )
    ]
