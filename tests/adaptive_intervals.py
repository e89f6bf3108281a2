"""Jobs in virtual time that fail at random and whose checkpoint interval an estimator chooses.

A job knows no formula of the model: it works, takes checkpoints, fails, and recovers or begins its interval again. The
estimator is told what a coordinator would measure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from clonos_py.checkpoint.estimates import IntervalEstimator
from clonos_py.model.ids import TaskId

TASK = TaskId("task", 0)


@dataclass(frozen=True)
class JobConditions:
    """What is true of a job for a while. Without a replay speed every failure rolls the job back."""

    cost_s: float
    failures_per_s: float
    restart_s: float
    replay_speed: float | None = None


class AdaptiveJob:
    """One run. ``work`` continues it under conditions that may differ from those before."""

    def __init__(self, estimator: IntervalEstimator, seed: int) -> None:
        self._estimator, self._random = estimator, np.random.default_rng(seed)
        self._now_s = self._since_checkpoint_s = 0.0

    def work(self, conditions: JobConditions, duration_s: float) -> float:
        """Returns the utilization during this time."""
        began_s, end_s, useful_s = self._now_s, self._now_s + duration_s, -self._since_checkpoint_s
        failure_s = self._failure_after(self._now_s, conditions)
        while self._now_s < end_s:
            due_s = self._estimator.choose(self._now_s).interval_s
            left_s = max(due_s - self._since_checkpoint_s, conditions.cost_s)
            if self._now_s + left_s <= failure_s:
                useful_s += self._since_checkpoint_s + left_s - conditions.cost_s
                self._now_s, self._since_checkpoint_s = self._now_s + left_s, 0.0
                self._estimator.snapshot(TASK, conditions.cost_s, 0.0)
            else:
                self._since_checkpoint_s += failure_s - self._now_s
                failure_s = self._recover(failure_s, conditions)
        return (useful_s + self._since_checkpoint_s) / (self._now_s - began_s)

    def _recover(self, failure_s: float, conditions: JobConditions) -> float:
        """Recovers from the failure, which others may interrupt. Returns the time of the next failure."""
        behind_s, speed = self._since_checkpoint_s, conditions.replay_speed
        replay_s = 0.0 if speed is None else behind_s / speed
        needed_s, next_s = conditions.restart_s + replay_s, failure_s
        while next_s < failure_s + needed_s:
            failure_s = next_s
            self._estimator.failed(failure_s)
            next_s = self._failure_after(failure_s, conditions)
        self._now_s = failure_s + needed_s
        if speed is None:
            self._since_checkpoint_s = 0.0
            self._estimator.restarted(conditions.restart_s, behind_s)
        else:
            self._estimator.replayed(conditions.restart_s, behind_s, replay_s)
        return next_s

    def _failure_after(self, now_s: float, conditions: JobConditions) -> float:
        if not conditions.failures_per_s:
            return math.inf
        return now_s + float(self._random.exponential(1 / conditions.failures_per_s))
