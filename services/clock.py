"""``ctx.time``: the wall clock, read through the gate, so that a replay sees the times its predecessor saw."""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.model.operators import Gate

TIME = "time"
"""The kind under which the gate logs a time."""


class CausalClock:
    """``wall_us`` reads the wall clock in microseconds UTC; it is asked only when nothing is replayed."""

    def __init__(self, gate: Gate, wall_us: Callable[[], int]) -> None:
        self._gate = gate
        self._wall_us = wall_us

    def now(self) -> int:
        """Microseconds UTC, logged."""
        now: int = self._gate.ask(TIME, self._wall_us)
        return now
