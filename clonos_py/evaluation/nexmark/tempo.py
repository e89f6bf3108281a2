"""The event times of events: at a constant rate, or at a repeating sequence of rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.words import Int64s

_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Tempo:
    """Maps event numbers to event times. ``rates``: events per second by step; a step lasts ``step_s`` seconds."""

    rates: tuple[int, ...]
    step_s: int = 1

    @staticmethod
    def of(event_rate: int, model: Model) -> Tempo:
        rates = model.rates(event_rate)
        return Tempo(rates, -(-model.rate_period_s // len(rates)))

    def times_us(self, numbers: Int64s) -> Int64s:
        """The times of events, relative to event 0. May overwrite ``numbers``."""
        if len(self.rates) == 1:
            np.multiply(numbers, _SECOND_US, out=numbers)
            return np.floor_divide(numbers, self.rates[0], out=numbers)
        rounds, rest = np.divmod(numbers, self._events[-1])
        step = np.searchsorted(self._events, rest, side="right") - 1
        within = (rest - self._events[step]) * _SECOND_US // np.array(self.rates)[step]
        times: Int64s = rounds * self._times[-1] + self._times[step] + within
        return times

    def span_us(self, events: int) -> int:
        """The longest time that this many consecutive events may take."""
        return -(-events * _SECOND_US // min(self.rates))

    def due_us(self, events: float) -> float:
        """The time of event number ``events``, which may be fractional."""
        if len(self.rates) == 1:
            return events * _SECOND_US / self.rates[0]
        rounds, rest = divmod(events, float(self._events[-1]))
        return float(rounds * self._times[-1] + np.interp(rest, self._events, self._times))

    def events_until(self, time_us: float) -> float:
        """The inverse of ``due_us``: the number of events before a time."""
        if len(self.rates) == 1:
            return time_us * self.rates[0] / _SECOND_US
        rounds, rest = divmod(time_us, float(self._times[-1]))
        return float(rounds * self._events[-1] + np.interp(rest, self._times, self._events))

    @cached_property
    def _events(self) -> npt.NDArray[np.int64]:
        """The number of events at the beginning of each step of a round, and at its end."""
        return np.cumsum([0, *(rate * self.step_s for rate in self.rates)], dtype=np.int64)

    @cached_property
    def _times(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.rates) + 1, dtype=np.int64) * self.step_s * _SECOND_US
