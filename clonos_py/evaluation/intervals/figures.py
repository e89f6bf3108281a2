"""Utilization by checkpoint interval, as rows of a table, as plain data and as a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clonos_py.checkpoint.interval import IntervalBounds, IntervalModel, daly_interval_s, zhuang_interval_s
from clonos_py.evaluation.plots import Axis, Plot, Point

BEST, YOURS = "best", "yours"
_AROUND = (0.25, 0.5, 2, 4)
"""The intervals of the table, as multiples of the best."""
_POINTS = 240
_PLOT_HEIGHT, _PLOT_TOP = 260, 56
_UNITS_S = (
    (172_800.0, 86_400.0, "d"),
    (7_200.0, 3_600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (0.0, 1e-3, "ms"),
)
"""The least number of seconds that is shown in a unit, the seconds of the unit, and its name."""


@dataclass(frozen=True)
class IntervalRow:
    """One interval. ``lost``: how much less work is done than at the best interval, as a share of that."""

    name: str
    interval_s: float
    utilization: float
    lost: float
    bounds: IntervalBounds


def interval_rows(model: IntervalModel, own_s: float | None = None) -> list[IntervalRow]:
    """The best interval and others around it, the shortest first; those of Daly and of Zhuang et al. if all failures
    are rollbacks; and ``own_s``. Raises SettingError if that is not longer than the cost of a checkpoint."""
    best_s = model.best_s()
    highest = model.utilization(best_s)
    intervals = [(BEST, best_s), *(("", best_s * times) for times in _AROUND)]
    if model.rollbacks and not model.local:
        system = model.cost_s, model.rollbacks.per_s, model.rollbacks.restart_s
        intervals += [("Daly", daly_interval_s(*system)), ("Zhuang", zhuang_interval_s(*system))]
    intervals = [(name, interval_s) for name, interval_s in intervals if interval_s > model.cost_s]
    if own_s is not None:
        intervals.append((YOURS, own_s))
    return [
        IntervalRow(name, interval_s, found, 1 - found / highest if highest else 0.0, model.bounds(interval_s))
        for name, interval_s in sorted(intervals, key=lambda each: each[1])
        for found in [model.utilization(interval_s)]
    ]


def plain(model: IntervalModel, rows: Sequence[IntervalRow]) -> dict[str, Any]:
    """The model and its rows as data for JSON. All times are in seconds."""
    best = next(row for row in rows if row.name == BEST)
    return {"model": asdict(model), "best": asdict(best), "intervals": [asdict(row) for row in rows]}


def best_setting(best_s: float) -> str:
    """The best interval as a setting, to three digits: 113.67 s is ``114s``."""
    _, unit_s, unit = _unit(best_s)
    value = best_s / unit_s
    return f"{value:.3g}{unit}" if value < 999 else f"{value:.0f}{unit}"


def span_text(seconds: float) -> str:
    """``113.6715`` as ``113.7 s``, in the largest unit of which there are at least two."""
    _, unit_s, unit = _unit(seconds)
    value = seconds / unit_s
    return f"{value:.4g} {unit}" if value < 9_999 else f"{value:,.0f} {unit}"


def _unit(seconds: float) -> tuple[float, float, str]:
    return next(unit for unit in _UNITS_S if seconds >= unit[0])


def share_text(share: float) -> str:
    """``0.977356`` as ``97.74%``."""
    return f"{share * 100:.2f}%"


# ---- the plot


def plot(model: IntervalModel, rows: Sequence[IntervalRow]) -> str:
    """Utilization over the interval as an SVG file, with the best interval and the user's own marked."""
    end_s = max(row.interval_s for row in rows if row.name in (BEST, YOURS, "")) * 1.05
    _, unit_s, unit = _unit(end_s / 2)
    points = [*_curve(model, end_s, unit_s)]
    marked = [row for row in rows if row.name in (BEST, YOURS)]
    best = next(row for row in marked if row.name == BEST)
    low = min(row.utilization for row in rows)
    margin = max((best.utilization - low) * 0.1, 1e-6)
    axis = Axis(max(low - margin, 0.0), best.utilization + margin, _PLOT_HEIGHT)
    drawn = Plot("Utilization by checkpoint interval", end_s / unit_s, axis, share_text, top=_PLOT_TOP, unit=f" {unit}")
    drawn.line([point for point in points if point[1] >= axis.low], "hue0")
    for row in marked:
        style = "best" if row.name == BEST else "own"
        drawn.mark(
            row.interval_s / unit_s, style, f"{row.name}: {span_text(row.interval_s)}, {share_text(row.utilization)}"
        )
    return drawn.file()


def _curve(model: IntervalModel, end_s: float, unit_s: float) -> Iterator[Point]:
    """Points that are closer together near the cost of a checkpoint, where utilization rises steeply."""
    width_s = end_s - model.cost_s
    for number in range(1, _POINTS + 1):
        interval_s = model.cost_s + width_s * (number / _POINTS) ** 2
        if interval_s > model.cost_s:
            yield interval_s / unit_s, model.utilization(interval_s)
