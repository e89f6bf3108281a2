"""A simulation of jobs that checkpoint, fail and recover at random, for comparison with the model of intervals.

It knows no formula of the model: it follows what a job does from failure to failure (sections 3.5 and 4.4 of the paper
in ``checkpoint/interval.py``). All runs advance together, one array element for each, by *steps*. In a step a run works
until a failure, or tries to recover until it has or until the next failure.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clonos_py.checkpoint.interval import IntervalModel

Times = NDArray[np.float64]
Flags = NDArray[np.bool_]

RUNS = 250
FAILURES = 2_000
"""The runs of the paper, and the mean number of failures in each."""


class Draws(Protocol):
    """Random numbers, such as those of a ``numpy.random.Generator`` with a seed."""

    def standard_exponential(self, size: int, /) -> Times: ...


def simulate(
    model: IntervalModel,
    interval_s: float,
    draws: Draws,
    runs: int = RUNS,
    failures: int = FAILURES,
) -> Times:
    """The utilization of each run. A run begins with a failure and ends with the first one after the time in which
    ``failures`` are to be expected, so that it consists of whole cycles. If there are rollbacks, these are the failures
    at both ends."""
    jobs = _Jobs(model, interval_s, draws, runs, failures)
    while jobs.running.any():
        jobs.step()
    return jobs.useful_s / jobs.now_s


class _Jobs:
    """Work is measured in seconds from the start of a run. Checkpoints lie at the multiples of the interval; each is
    complete when ``lag_s`` more is done. A run begins where a rollback leaves a job, or, if there are none, where a
    checkpoint has just become complete."""

    def __init__(self, model: IntervalModel, interval_s: float, draws: Draws, runs: int, failures: int) -> None:
        self._model, self._interval_s, self._draws, self._runs = model, interval_s, draws, runs
        self._local_per_s = model.local.per_s if model.local else 0.0
        self._rollbacks_per_s = model.rollbacks.per_s if model.rollbacks else 0.0
        self._least_s = failures / (self._local_per_s + self._rollbacks_per_s)
        self.now_s = np.zeros(runs)
        self._begin_s = 0.0 if model.rollbacks else model.lag_s
        self._done_s = np.full(runs, self._begin_s, float)
        self._restart_point_s = np.zeros(runs)
        self._restarts = np.full(runs, model.rollbacks is not None)
        self._recovers_locally = ~self._restarts
        self.running = np.ones(runs, bool)

    @property
    def useful_s(self) -> Times:
        """The work that was done, without that for checkpoints, which ends each interval."""
        return self._useful_until(self._done_s) - self._useful_until(np.full(self._runs, self._begin_s, float))

    def _useful_until(self, done_s: Times) -> Times:
        complete, rest_s = np.divmod(done_s, self._interval_s)
        work_s = self._interval_s - self._model.cost_s
        return np.asarray(complete * work_s + np.minimum(rest_s, work_s))

    def step(self) -> None:
        works = ~(self._recovers_locally | self._restarts)
        local_s, rollback_s = self._next_failures()
        failure_s, recovery_s = np.minimum(local_s, rollback_s), self._recovery_s()
        spent_s = np.where(self.running, np.minimum(failure_s, recovery_s), 0.0)
        self.now_s += spent_s
        self._done_s += np.where(works, spent_s, 0.0)
        self._complete_checkpoints()
        fails = self.running & (failure_s < recovery_s)
        self._restarts = fails & (rollback_s < local_s)
        self._recovers_locally = fails & ~self._restarts
        self._done_s = np.where(self._restarts, self._restart_point_s, self._done_s)
        cycle_ends = self._restarts if self._model.rollbacks else self._recovers_locally
        self.running &= ~(cycle_ends & (self.now_s >= self._least_s))

    def _next_failures(self) -> tuple[Times, Times]:
        """The times to the next local failure and to the next rollback. While the whole job restarts, no failure is
        local."""
        local_s = self._until(self._local_per_s)
        rollback_s = self._until(self._rollbacks_per_s)
        local_s[self._restarts] = np.inf
        return local_s, rollback_s

    def _until(self, per_s: float) -> Times:
        return self._draws.standard_exponential(self._runs) / per_s if per_s else np.full(self._runs, np.inf)

    def _recovery_s(self) -> Times:
        """How long each run has to go without failure to recover; infinite if it works."""
        needed_s = np.full(self._runs, np.inf)
        if self._model.local:
            behind_s, fed_s = self._done_s - self._restart_point_s, self._model.local.feed_lag_s
            replayed_s = behind_s if fed_s is None else np.minimum(behind_s, fed_s)
            replay_s = replayed_s / self._model.local.replay_speed
            needed_s[self._recovers_locally] = (self._model.local.restart_s + replay_s)[self._recovers_locally]
        if self._model.rollbacks:
            needed_s[self._restarts] = self._model.rollbacks.restart_s
        return needed_s

    def _complete_checkpoints(self) -> None:
        behind_s = self._done_s - self._model.lag_s - self._restart_point_s
        self._restart_point_s += np.maximum(np.floor(behind_s / self._interval_s), 0.0) * self._interval_s
