"""When events happen: at a constant rate, or at rates that follow each other in steps, over and over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clonos_py.nexmark.model import Model
from clonos_py.nexmark.words import Int64s

_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Tempo:
    """``rates``: events per second of each step, all of which last ``step_s`` seconds."""

    rates: tuple[int, ...]
    step_s: int = 1

    @staticmethod
    def of(event_rate: int, model: Model) -> Tempo:
        rates = model.rates(event_rate)
        return Tempo(rates, -(-model.rate_period_s // len(rates)))

    def times_us(self, numbers: Int64s) -> Int64s:
        """How long after event 0 events happen. May work in place."""
        if len(self.rates) == 1:
            np.multiply(numbers, _SECOND_US, out=numbers)
            return np.floor_divide(numbers, self.rates[0], out=numbers)
        rounds, rest = np.divmod(numbers, self._events[-1])
        step = np.searchsorted(self._events, rest, side="right") - 1
        within = (rest - self._events[step]) * _SECOND_US // np.array(self.rates)[step]
        times: Int64s = rounds * self._times[-1] + self._times[step] + within
        return times

    def span_us(self, events: int) -> int:
        """The longest that so many events in a row may take."""
        return -(-events * _SECOND_US // min(self.rates))

    def due_us(self, events: float) -> float:
        """When event number ``events`` happens, also between two."""
        if len(self.rates) == 1:
            return events * _SECOND_US / self.rates[0]
        rounds, rest = divmod(events, float(self._events[-1]))
        return float(rounds * self._times[-1] + np.interp(rest, self._events, self._times))

    def events_until(self, time_us: float) -> float:
        """The reverse: how many events happen before a time."""
        if len(self.rates) == 1:
            return time_us * self.rates[0] / _SECOND_US
        rounds, rest = divmod(time_us, float(self._times[-1]))
        return float(rounds * self._events[-1] + np.interp(rest, self._times, self._events))

    @cached_property
    def _events(self) -> npt.NDArray[np.int64]:
        """How many events have happened at the beginning of each step of a round, and at its end."""
        return np.cumsum([0, *(rate * self.step_s for rate in self.rates)], dtype=np.int64)

    @cached_property
    def _times(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.rates) + 1, dtype=np.int64) * self.step_s * _SECOND_US
