"""The paper's figures on checkpoint intervals beside ours: numbers, table 1, curves, and points to simulate. Pure.

Figures 4, 5 and 10 to 16 are curves of the model; 5 and 12 have simulated points. Two more figures are ours: local
recovery, alone and together with rollbacks (E19).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clonos_py.checkpoint.interval import (
    IntervalModel,
    LocalFailures,
    Rollbacks,
    best_interval_s,
    daly_interval_s,
    zhuang_interval_s,
)
from clonos_py.evaluation.intervals import paper
from clonos_py.evaluation.intervals.simulation import Draws, simulate
from clonos_py.evaluation.plots import Point

_POINTS = 120
_NEAR = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""The simulated intervals, as multiples of the best."""
_LEAST_COSTS = 1.2
"""The shortest simulated interval, as a multiple of the cost of a checkpoint."""

# ---- numbers


@dataclass(frozen=True)
class ReproducedNumber:
    """A number that the paper prints, and the same computed with our model."""

    where: str
    what: str
    printed: str
    value: float

    @property
    def computed(self) -> str:
        """With two more digits than the paper prints."""
        return f"{self.value:.{self._places + 2}f}"

    @property
    def agrees(self) -> bool:
        """Whether it is the printed number in the printed digits."""
        return abs(self.value - float(self.printed)) <= 0.5001 * 10.0**-self._places

    @property
    def _places(self) -> int:
        return len(self.printed.partition(".")[2])


def gain_percent(model: IntervalModel, other_s: float) -> float:
    """How much more work is done with the best interval than with another one."""
    return (model.utilization(model.best_s()) / model.utilization(other_s) - 1) * 100


def numbers() -> list[ReproducedNumber]:
    """All numbers of the paper's text that follow from printed values; table 1 is apart."""
    return list(_numbers())


def _numbers() -> Iterator[ReproducedNumber]:
    model, wide = paper.example(), paper.example(depth=50)
    best = model.best_s()
    yield ReproducedNumber("figure 4", "best interval, min", "46.452", best)
    yield ReproducedNumber("figure 4", "its utilization", "0.7541", model.utilization(best))
    yield ReproducedNumber("figure 10", "best interval of 50 operators, min", "46.452", wide.best_s())
    yield ReproducedNumber("figure 10", "its utilization", "0.667", wide.utilization(best))
    less = (1 - wide.utilization(best) / model.utilization(best)) * 100
    yield ReproducedNumber("figure 11", "less work with 50 operators than with one, %", "11.6", less)
    for per_hour, printed in paper.SYSTEMS_PER_HOUR.items():
        gain = gain_percent(paper.flink(per_hour), paper.USUAL_S)
        yield ReproducedNumber("section 5", f"gain over 30 min at {per_hour:g} failures/h, %", printed, gain)
    rate = _rate_with_best(paper.USUAL_S, 1.0) * paper.HOUR_S
    yield ReproducedNumber("section 5", "failures/h at which 30 min is best for a cost of 1 s", "0.0022", rate)
    for nodes, printed in paper.NODES.items():
        gain = gain_percent(paper.flink(nodes * paper.NODE_PER_HOUR), paper.USUAL_S)
        yield ReproducedNumber("figure 13", f"gain over 30 min on {nodes:,} nodes, %", printed, gain)
    deepest = paper.deep(15_000)
    yield ReproducedNumber(
        "figure 14", "utilization of 15,000 operators", "0.0018", deepest.utilization(deepest.best_s())
    )
    frequent = paper.compared(11.0)
    for name, other_s, printed in zip(("Daly", "Zhuang"), _others(frequent), ("2.3", "3.7"), strict=True):
        yield ReproducedNumber(
            "figure 16", f"gain over {name} at 11 failures/h, %", printed, gain_percent(frequent, other_s)
        )


def _rate_with_best(interval_s: float, cost_s: float) -> float:
    """The rate of failures at which this interval is the best one, by bisection."""
    low, high = 1e-12, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if best_interval_s(cost_s, middle) > interval_s else (low, middle)
    return low


def _others(model: IntervalModel) -> tuple[float, float]:
    """The best intervals of Daly and of Zhuang et al."""
    assert model.rollbacks is not None
    system = model.cost_s, model.rollbacks.per_s, model.rollbacks.restart_s
    return daly_interval_s(*system), zhuang_interval_s(*system)


# ---- table 1

TABLE_1_HEADS = (
    "failures/min", "n", "c", "R", "delta",
    "U(30 min) observed", "printed", "ours", "T* min printed", "ours", "U(T*) observed", "printed", "ours",
)  # fmt: skip
TABLE_1_NOTE = (
    "U(30 min) and T* are the printed ones in all digits. The printed U(T*) does not follow from the printed c, R, "
    "delta and failures: equation 10 gives ours. Nothing is tuned towards it."
)


def table_1() -> list[tuple[str, ...]]:
    """The rows of table 1, with our values beside the printed ones."""
    return [_table_1_row(row) for row in paper.TABLE_1]


def _table_1_row(row: paper.FlinkExperiment) -> tuple[str, ...]:
    model = row.model
    best_s = model.best_s()
    return (
        f"{row.per_min:g}",
        str(row.depth),
        f"{row.cost_s:g} s",
        f"{row.restart_s:g} s",
        f"{row.delay_ms:g} ms",
        row.observed_usual,
        row.printed_usual,
        f"{model.utilization(paper.USUAL_S):.4f}",
        row.printed_best_min,
        f"{best_s / paper.MINUTE_S:.4f}",
        row.observed_best,
        row.printed_best,
        f"{model.utilization(best_s):.4f}",
    )


# ---- simulated points


@dataclass(frozen=True)
class SimulatedPoint:
    """One system at one interval. ``figure`` and ``line`` say where it is shown."""

    figure: str
    line: str
    model: IntervalModel
    interval: float

    @property
    def key(self) -> dict[str, str]:
        return {"figure": self.figure, "line": self.line, "interval": f"{self.interval:.6g}"}

    def run(self, draws: Draws, runs: int, failures: int) -> dict[str, float]:
        """Mean and standard deviation of utilization over the runs, and the difference from the model in standard
        errors of the mean."""
        found = simulate(self.model, self.interval, draws, runs, failures)
        mean, deviation = float(found.mean()), float(found.std(ddof=1))
        error = deviation / len(found) ** 0.5
        apart = (mean - self.model.utilization(self.interval)) / error if error else 0.0
        return {"mean": mean, "deviation": deviation, "apart": apart}


def simulated_points() -> list[SimulatedPoint]:
    """All points, in the order of the figures."""
    return [
        SimulatedPoint(figure, line, model, interval)
        for figure, systems in _simulated_systems().items()
        for line, model in systems.items()
        for interval in _intervals(model)
    ]


def _simulated_systems() -> Mapping[str, Mapping[str, IntervalModel]]:
    rates, depths = paper.RATES_PER_MIN, paper.DEPTHS
    return {
        "5": {_rate_text(rate): paper.example(rate) for rate in rates},
        **{
            f"12 {_rate_text(rate)}": {_depth_text(depth): paper.example(rate, depth) for depth in depths}
            for rate in rates
        },
        "local": {_speed_text(speed): _local(speed) for speed in _SPEEDS},
        "both": {_rollbacks_text(rollbacks): _both(rollbacks) for rollbacks in _ROLLBACKS},
    }


def _intervals(model: IntervalModel) -> list[float]:
    least = _LEAST_COSTS * model.cost_s
    return sorted({round(max(model.best_s() * times, least), 3) for times in _NEAR})


_SPEEDS = (0.5, 1.0, 3.0, 20.0)
_LOCAL = LocalFailures(0.02, 2.0)
_ROLLBACKS = (Rollbacks(0.001, 30.0), Rollbacks(0.02 / 3, 10.0), Rollbacks(0.02, 1.0))
_LOCAL_LAG, _LOCAL_SPEED = 4.0, 3.0


def _local(speed: float) -> IntervalModel:
    return IntervalModel(5.0, None, LocalFailures(_LOCAL.per_s, _LOCAL.restart_s, speed), _LOCAL_LAG)


def _both(rollbacks: Rollbacks) -> IntervalModel:
    return IntervalModel(1.0, rollbacks, LocalFailures(_LOCAL.per_s, _LOCAL.restart_s, _LOCAL_SPEED), _LOCAL_LAG)


def _rate_text(per_min: float) -> str:
    return f"{per_min:g} failures/min"


def _depth_text(depth: int) -> str:
    return "1 operator" if depth == 1 else f"{depth} operators"


def _speed_text(speed: float) -> str:
    return f"replays at {speed:g} times normal speed"


def _rollbacks_text(rollbacks: Rollbacks) -> str:
    return f"{rollbacks.per_s:.2g} rollbacks/min"


# ---- figures


@dataclass(frozen=True)
class IntervalFigure:
    """Curves by the name of their line, and simulated means with their deviations. ``unit``: of the horizontal axis."""

    key: str
    title: str
    unit: str
    curves: Mapping[str, Sequence[Point]]
    vertical: str = "utilization"
    statement: str = ""
    simulated: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    """By line: interval, mean and standard deviation."""
    marked: float | None = None
    """The best interval."""


Simulated = Mapping[tuple[str, str, str], Mapping[str, float]]
"""What ``SimulatedPoint.run`` has found, by figure, line and interval."""


def figures(simulated: Simulated) -> list[IntervalFigure]:
    """All figures, in the order of the paper, then ours."""
    found = [
        *_figures_of_one(),
        _by_interval("5", "Figure 5: utilization for c = 5 min, R = 10 min"),
        *_figures_of_many(),
        *(
            _by_interval(f"12 {_rate_text(rate)}", f"Figure 12: {_rate_text(rate)}, c = 5, R = 10, delta = 0.5 min")
            for rate in paper.RATES_PER_MIN
        ),
        *_scaling(),
        *_compared(),
        _by_interval("local", "Local recovery: 0.02 failures/min, c = 5, R = 2, D = 4 min"),
        _by_interval("both", "Local recovery and rollbacks: 0.02 local failures/min, c = 1, v = 3, D = 4 min"),
    ]
    return [_with_points(figure, simulated) for figure in sorted(found, key=lambda each: _order(each.key))]


def _order(key: str) -> tuple[float, str]:
    number = key.split(maxsplit=1)[0]
    return (float(number.rstrip("ab")), key) if number[0].isdigit() else (100.0, "" if key == "local" else key)


def _with_points(figure: IntervalFigure, simulated: Simulated) -> IntervalFigure:
    points: dict[str, list[tuple[float, float, float]]] = {}
    for (key, line, interval), found in simulated.items():
        if key == figure.key:
            points.setdefault(line, []).append((float(interval), found["mean"], found["deviation"]))
    sorted_points = {line: sorted(each) for line, each in points.items()}
    return IntervalFigure(**{**vars(figure), "simulated": sorted_points})


def _by_interval(key: str, title: str) -> IntervalFigure:
    systems = _simulated_systems()[key]
    longest = max(_intervals(model)[-1] for model in systems.values()) * 1.1
    return IntervalFigure(key, title, " min", {line: _curve(model, longest) for line, model in systems.items()})


def _curve(model: IntervalModel, longest: float) -> list[Point]:
    width = longest - model.cost_s
    intervals = (model.cost_s + width * (number / _POINTS) ** 2 for number in range(1, _POINTS + 1))
    return [(interval, model.utilization(interval)) for interval in intervals]


def _figures_of_one() -> Iterator[IntervalFigure]:
    one, wide = paper.example(), paper.example(depth=50)
    of, best = "0.005 failures/min, c = 5, R = 10 min", one.best_s()
    curve, wide_curve = _curve(one, 4 * best), _curve(wide, 4 * best)
    yield IntervalFigure("4", f"Figure 4: {of}", " min", {"1 operator": curve}, marked=best)
    yield IntervalFigure(
        "10", f"Figure 10: {of}, n = 50, delta = 0.5 min", " min", {"50 operators": wide_curve}, marked=best
    )
    yield IntervalFigure(
        "11",
        f"Figure 11: {of}",
        " min",
        {"1 operator": curve, "50 operators": wide_curve},
        statement="the best interval is the same; 50 operators do 11.6% less",
        marked=best,
    )


def _figures_of_many() -> Iterator[IntervalFigure]:
    depths = [1, *range(250, 15_001, 250)]
    points = [(float(depth), (model := paper.deep(depth)).utilization(model.best_s())) for depth in depths]
    yield IntervalFigure(
        "14",
        "Figure 14: utilization at the best interval, c = 10 s, R = 30 s, delta = 5 s, 0.005 failures/min",
        " operators",
        {"utilization": points},
        statement="0.0018 for 15,000 operators",
    )


def _scaling() -> Iterator[IntervalFigure]:
    nodes = range(10, 2_001, 10)
    gains = [(float(n), gain_percent(paper.flink(n * paper.NODE_PER_HOUR), paper.USUAL_S)) for n in nodes]
    rates = [(float(n), n * paper.NODE_PER_HOUR) for n in nodes]
    yield IntervalFigure("13a", "Figure 13: failures per hour", " nodes", {"failures/h": rates}, "number")
    yield IntervalFigure(
        "13b",
        "Figure 13: gain of the best interval over 30 minutes, percent",
        " nodes",
        {"gain": gains},
        "number",
        "68.8% on 1,000 nodes, 226.83% on 2,000",
    )


def _compared() -> Iterator[IntervalFigure]:
    rates = [number / 10 for number in range(1, 111)]
    for key, cost_s, restart_s in (("15a", 10.0, 30.0), ("15b", 120.0, 300.0)):
        title = f"Figure 15: best interval in minutes, c = {cost_s:g} s, R = {restart_s:g} s"
        models = [(rate, paper.compared(rate, cost_s, restart_s)) for rate in rates]
        curves = {
            name: [(rate, found(model) / paper.MINUTE_S) for rate, model in models] for name, found in _MODELS.items()
        }
        yield IntervalFigure(
            key, title, "/h", curves, "number", "nearly the same if c and R are short, apart where they are long"
        )
    gains = {
        name: [(rate, gain_percent(model, found(model))) for rate, model in models]
        for name, found in _MODELS.items()
        if name != "ours"
    }
    title = "Figure 16: gain of the best interval in percent, c = 2 min, R = 5 min, delta = 30 s, n = 25"
    yield IntervalFigure("16", title, "/h", gains, "number", "2.3% over Daly's and 3.7% over Zhuang's at 11/h")


_MODELS: Mapping[str, Callable[[IntervalModel], float]] = {
    "ours": IntervalModel.best_s,
    "Daly": lambda model: _others(model)[0],
    "Zhuang et al.": lambda model: _others(model)[1],
}
