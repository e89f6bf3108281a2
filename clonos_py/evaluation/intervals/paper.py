"""What the utilization model's paper prints (``checkpoint/interval.py`` names it), and the systems that it describes.

Times are in minutes where the paper uses minutes, else in seconds: the model has no unit of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.checkpoint.interval import IntervalModel, Rollbacks, lag_of

MINUTE_S, HOUR_S = 60.0, 3_600.0
USUAL_S = 30 * MINUTE_S
"""The interval of 30 minutes with which the paper compares."""
COST_MIN, RESTART_MIN, DELAY_MIN = 5.0, 10.0, 0.5
RATES_PER_MIN = (0.1, 0.05, 0.025, 0.005)
"""Of figures 5 and 12."""
DEPTHS = (1, 5, 50)
"""Of figure 12; the paper plots several and names only 50."""


def example(per_min: float = 0.005, depth: int = 1) -> IntervalModel:
    """The system of figures 4, 5, 10, 11 and 12, in minutes."""
    return IntervalModel(COST_MIN, Rollbacks(per_min, RESTART_MIN), lag_s=lag_of(depth, DELAY_MIN))


def flink(per_hour: float, cost_s: float = 5.0) -> IntervalModel:
    """The job in real systems (section 5) and on many nodes (figure 13), in seconds."""
    return IntervalModel(cost_s, Rollbacks(per_hour / HOUR_S, 30.0), lag_s=lag_of(5, 0.050))


def deep(depth: int) -> IntervalModel:
    """The job of figure 14, in seconds."""
    return IntervalModel(10.0, Rollbacks(0.005 / MINUTE_S, 30.0), lag_s=lag_of(depth, 5.0))


def compared(per_hour: float, cost_s: float = 120.0, restart_s: float = 300.0) -> IntervalModel:
    """The job of figures 15 and 16, in seconds."""
    return IntervalModel(cost_s, Rollbacks(per_hour / HOUR_S, restart_s), lag_s=lag_of(25, 30.0))


SYSTEMS_PER_HOUR = {0.8475: "18.91", 0.1701: "2.4", 0.135: "1.73", 0.1161: "1.4", 0.0606: "0.5"}
"""The rate of failures of five real systems, and the gain in percent over 30 minutes that is printed."""
NODE_PER_HOUR = 0.0022
NODES = {1_000: "68.8", 2_000: "226.83"}
"""Figure 13: a number of nodes, and the gain in percent over 30 minutes."""


@dataclass(frozen=True)
class FlinkExperiment:
    """A row of table 1: a job on Flink, what was measured, and the utilization that was observed and computed, with an
    interval of 30 minutes and with the best."""

    per_min: float
    depth: int
    cost_s: float
    restart_s: float
    delay_ms: float
    observed_usual: str
    printed_usual: str
    printed_best_min: str
    observed_best: str
    printed_best: str
    printed_gain: str
    """Percent."""

    @property
    def model(self) -> IntervalModel:
        lag_s = lag_of(self.depth, self.delay_ms / 1e3)
        return IntervalModel(self.cost_s, Rollbacks(self.per_min / MINUTE_S, self.restart_s), lag_s=lag_s)


TABLE_1 = (
    FlinkExperiment(0.05, 5, 1.6, 23.1, 27.35, "0.4228", "0.4222", "1.0418", "0.9416", "0.9442", "123"),
    FlinkExperiment(0.05, 7, 3.09, 23.81, 32.65, "0.4069", "0.4216", "1.4526", "0.9223", "0.9258", "126"),
    FlinkExperiment(0.01, 5, 1.07, 23.70, 13.86, "0.8449", "0.8536", "1.8945", "0.9806", "0.98", "16"),
    FlinkExperiment(0.01, 7, 1.59, 24.12, 15.07, "0.8447", "0.8533", "2.3110", "0.9686", "0.9692", "15"),
    FlinkExperiment(0.005, 5, 1.15, 25.37, 12.6, "0.9109", "0.9243", "2.7753", "0.9815", "0.9866", "8"),
    FlinkExperiment(0.005, 7, 2.57, 24.07, 12.85, "0.9118", "0.9237", "4.1536", "0.9755", "0.9781", "7"),
)
