"""When a table emits what is pending every so often: at multiples of a period, in event time or in processing time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos_py.model.operators import OperatorContext
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.model.windows import Emit, Every

_TIMER = "timer"


class EmitPeriods:
    """The periods of ``emit=Every(...)``; with any other ``emit`` none passes. In processing time a timer is set only
    while something is pending."""

    def __init__(self, emit: Emit) -> None:
        self._every = emit if isinstance(emit, Every) else None

    def open(self, ctx: OperatorContext) -> None:
        self._ctx = ctx
        self._timer: int | None = None

    def passed(self, before: int, reached: int, ahead_us: int = 0) -> bool:
        """Whether event time has passed a multiple of the period. The first time that is known is none. ``ahead_us``:
        how far the watermark is ahead of the two times."""
        if self._every is None or self._every.processing_time or before == MIN_TIME:
            return False
        return (reached + ahead_us) // self._every.period_us > (before + ahead_us) // self._every.period_us

    def pending(self) -> None:
        """Something is pending: sets a timer in processing time, unless one is set."""
        if self._every is not None and self._every.processing_time and self._timer is None:
            self._timer = (self._ctx.time.now() // self._every.period_us + 1) * self._every.period_us
            self._ctx.set_timer(self._timer)

    def fired(self, at: int) -> bool:
        """Whether the timer that fires ``at`` is the one that is set. None is set then."""
        if at != self._timer:
            return False
        self._timer = None
        return True

    def values(self) -> dict[str, Any]:
        return {_TIMER: self._timer}

    def restore(self, parts: Sequence[OperatorState], pending: bool) -> None:
        """``pending``: whether anything is pending."""
        timers: list[Any] = [part.values[_TIMER] for part in parts if part.values[_TIMER] is not None]
        self._timer = min(timers) if timers and pending else None
        if self._timer is not None:
            self._ctx.set_timer(self._timer)
