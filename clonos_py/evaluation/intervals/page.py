"""The comparison of checkpoint intervals with the paper, and what was measured, as tables and one HTML page. Pure,
except that the page reads the style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from clonos_py.evaluation.intervals.comparison import (
    TABLE_1_HEADS,
    TABLE_1_NOTE,
    IntervalFigure,
    Simulated,
    figures,
    numbers,
    table_1,
)
from clonos_py.evaluation.intervals.figures import share_text, span_text
from clonos_py.evaluation.page import card, document, legend, table
from clonos_py.evaluation.plots import Plot, linear

WITHIN = 0.03
"""How far a measured utilization may be from the foretold one."""
WITHIN_BEST = 0.25
"""How far an interval that a job has found may be from the best one of its measured parameters, as a share of that."""
_WIDTH, _HEIGHT, _HUES = 500, 180, 5

Line = Mapping[str, Any]
Rows = list[tuple[str, ...]]

# ---- tables

NUMBER_HEADS = ("where", "what", "printed", "ours", "")
MEASURED_HEADS = (
    "recovery", "kills/min", "failures", "interval", "c", "R", "v", "D", "measured", "foretold", "apart",
    "equation", "",
)  # fmt: skip
FOUND_HEADS = (
    "start",
    "failures",
    "first",
    "interval",
    "best of measured",
    "apart",
    "c",
    "R",
    "v",
    "a failure every",
    "",
)
SIMULATED_HEADS = ("figure", "line", "interval min", "model", "simulated", "deviation", "apart, standard errors")


def number_rows() -> Rows:
    return [(n.where, n.what, n.printed, n.computed, "" if n.agrees else "differs") for n in numbers()]


def measured_rows(lines: Iterable[Line]) -> Rows:
    return [_measured_row(line) for line in lines]


def _measured_row(line: Line) -> tuple[str, ...]:
    apart = line["utilization"] - line["foretold"]
    return (
        line["recovery"],
        f"{line['per_minute']:g}",
        str(len(line["failures_s"])),
        span_text(line["interval_s"]),
        *_parameters(line),
        span_text(line["lag_s"]),
        f"{line['utilization']:.4f}",
        f"{line['foretold']:.4f}",
        f"{apart:+.4f}",
        f"{line['equation']:.4f}",
        f"within {WITHIN:g}" if abs(apart) <= WITHIN else "differs",
    )


def _parameters(line: Line) -> tuple[str, str, str]:
    speed = line["replay_speed"]
    return span_text(line["cost_s"]), span_text(line["restart_s"]), "-" if speed is None else f"{speed:.2f}"


def found_rows(lines: Iterable[Line]) -> Rows:
    return [_found_row(line) for line in lines]


def _found_row(line: Line) -> tuple[str, ...]:
    apart = line["interval_s"] / line["best_s"] - 1
    return (
        line["start"],
        str(line["failures"]),
        span_text(line["first_s"]),
        span_text(line["interval_s"]),
        span_text(line["best_s"]),
        f"{apart:+.1%}",
        *_parameters(line),
        span_text(1 / line["failures_per_s"]),
        f"within {WITHIN_BEST:.0%}" if abs(apart) <= WITHIN_BEST else "differs",
    )


def simulated_rows(lines: Iterable[Line]) -> Rows:
    return [
        (
            line["figure"],
            line["line"],
            line["interval"],
            f"{line['mean'] - line['apart'] * line['deviation'] / line['runs'] ** 0.5:.5f}",
            f"{line['mean']:.5f}",
            f"{line['deviation']:.5f}",
            f"{line['apart']:+.2f}",
        )
        for line in lines
    ]


# ---- the page


def page(simulated: Sequence[Line], measured: Sequence[Line], found: Sequence[Line], terms: Mapping[str, Any]) -> str:
    """The whole HTML document. Each sequence has the finished runs of its kind."""
    points: Simulated = {(line["figure"], line["line"], line["interval"]): line for line in simulated}
    meta = ", ".join(f"{name} {value}" for name, value in terms.items() if value is not None)
    content = [
        card("Numbers of the paper, and ours", table(NUMBER_HEADS, number_rows())),
        card("Table 1", f"<p>{escape(TABLE_1_NOTE)}</p>", table(TABLE_1_HEADS, table_1())),
        *_measured_cards(measured, found),
        '<div class="pair">',
        *map(_figure_card, figures(points)),
        "</div>",
    ]
    if simulated:
        content.append(card("Simulated points", table(SIMULATED_HEADS, simulated_rows(simulated))))
    return document("Checkpoint intervals", "Checkpoint intervals", meta, content)


def _measured_cards(measured: Sequence[Line], found: Sequence[Line]) -> list[str]:
    cards = []
    if measured:
        note = (
            "Utilization of the bottleneck, counted from the events of a run on Ray, and what the model foretells for "
            "the same failures. The equation takes only their number."
        )
        cards.append(card("Measured utilization", f"<p>{note}</p>", table(MEASURED_HEADS, measured_rows(measured))))
    if found:
        note = "The interval that a job has found after its failures, and the best one of what was measured in its run."
        plots = [_path_plot(line) for line in found]
        cards.append(card("Intervals that jobs found", f"<p>{note}</p>", table(FOUND_HEADS, found_rows(found)), *plots))
    return cards


def _path_plot(line: Line) -> str:
    """The interval over time, from the first choice on."""
    path = [(at_s, interval_s) for at_s, interval_s in line["path"]]
    highest = max([interval_s for _, interval_s in path] + [line["best_s"]])
    plot = Plot(f"interval in seconds, start {line['start']}", path[-1][0], linear(highest, _HEIGHT), _number)
    plot.line([(0.0, line["best_s"]), (path[-1][0], line["best_s"])], "hue5")
    plot.line(path, "hue0")
    for failure_s in line["failures_s"]:
        plot.tick(failure_s, "fail", f"failure after {failure_s:.1f} s")
    names = [("hue0", f"interval in seconds, start {line['start']}"), ("hue5", "best of what was measured")]
    return legend(names) + plot.svg()


def _figure_card(figure: IntervalFigure) -> str:
    styles = {name: f"hue{number % _HUES}" for number, name in enumerate(figure.curves)}
    statement = [f"<p>The paper: {escape(figure.statement)}.</p>"] if figure.statement else []
    entries = [(style, name) for name, style in styles.items()]
    return card(figure.title, *statement, legend(entries), _figure_svg(figure, styles))


def _figure_svg(figure: IntervalFigure, styles: Mapping[str, str]) -> str:
    values = [value for curve in figure.curves.values() for _, value in curve]
    show = share_text if figure.vertical == "utilization" else _number
    widest = max(x for curve in figure.curves.values() for x, _ in curve)
    plot = Plot(figure.title, widest, linear(max(values), _HEIGHT), show, _WIDTH, unit=figure.unit)
    for name, curve in figure.curves.items():
        plot.line(curve, styles[name])
    for name, points in figure.simulated.items():
        for interval, mean, deviation in points:
            plot.line([(interval, mean - deviation), (interval, mean + deviation)], styles[name])
            plot.line([(interval, mean)], styles[name])
    if figure.marked is not None:
        plot.mark(figure.marked, "best")
    return plot.svg()


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"
