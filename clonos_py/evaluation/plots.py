"""Plots as inline SVG, without scripts. Colours come from the style sheet (``style``), for light and dark themes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

Point = tuple[float, float]

_LEFT, _RIGHT, _BOTTOM = 64, 16, 26
_TICK_STEPS = (1, 2, 2.5, 5, 10)
_TICKS_X, _TICKS_Y = 10, 4
_POWERS_DIVIDED = 4
"""The most powers of ten on an axis that still has ticks between them."""
_LABEL_WIDTH = 7.0
"""The approximate width of a character."""
_LABEL_ROW = 15


def style() -> str:
    """The style sheet of a page with plots."""
    return Path(__file__).with_name("plots.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels: ``low`` to ``high`` along ``length`` pixels, on a logarithmic scale if ``log``."""

    low: float
    high: float
    length: float
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            value, low, high = (math.log10(max(v, self.low)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (min(max(value, low), high) - low) / (high - low) * self.length

    def ticks(self, count: int) -> list[float]:
        """About ``count`` round values."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            nice = (1, 2, 5) if len(powers) <= _POWERS_DIVIDED else (1,)
            found = [10.0**power * step for power in powers for step in nice]
            return [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * nice for nice in _TICK_STEPS if power * nice >= rough * 0.999)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def linear(high: float, length: float) -> Axis:
    """An axis from 0 to a little above ``high``."""
    return Axis(0.0, high * 1.08 or 1.0, length)


def logarithmic(values: Sequence[float], length: float) -> Axis:
    """A logarithmic axis from a power of ten below all values to a little above them."""
    positive = [value for value in values if value > 0] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    return Axis(low, max(max(positive) * 1.6, low * 10), length, log=True)


@dataclass
class Plot:
    """One plot over time, ``seconds`` wide, or over another quantity with its own ``unit``. Later drawings cover
    earlier ones. ``svg`` returns the element."""

    title: str
    seconds: float
    y: Axis
    show: Callable[[float], str]
    """Formats a value of the vertical axis."""
    width: int = 1040
    top: int = 10
    unit: str = " s"
    _drawn: list[str] = field(default_factory=list)
    _above: list[str] = field(default_factory=list)
    _labels_end: list[float] = field(default_factory=list)

    @property
    def x(self) -> Axis:
        return Axis(0.0, max(self.seconds, 0.001), self.width - _LEFT - _RIGHT)

    @property
    def height(self) -> int:
        return round(self.top + self.y.length + _BOTTOM)

    def at(self, point: Point) -> Point:
        return _LEFT + self.x.place(point[0]), self.top + self.y.length - self.y.place(point[1])

    # ---- what is drawn

    def line(self, points: Sequence[Point], style: str, gap_s: float = math.inf) -> None:
        """Draws a line. It is interrupted at gaps longer than ``gap_s``; a single point is drawn as a dot."""
        for piece in _pieces(points, gap_s):
            places = [self.at(point) for point in piece]
            if len(places) == 1:
                x, y = places[0]
                self._drawn.append(f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>')
            else:
                self._drawn.append(f'<path class="line {style}" d="{_path(places)}"/>')

    def steps(self, points: Sequence[Point], width_s: float, style: str) -> None:
        """Draws an area of adjacent bars, each ``width_s`` wide, starting at its point."""
        for piece in _pieces(points, width_s * 1.5):
            corners = [corner for t, v in piece for corner in (self.at((t, v)), self.at((t + width_s, v)))]
            base = self.at((piece[0][0], self.y.low))[1]
            path = f"M{corners[0][0]:.1f},{base:.1f}L{_path(corners)[1:]}L{corners[-1][0]:.1f},{base:.1f}Z"
            self._drawn.append(f'<path class="area {style}" d="{path}"/>')

    def band(self, since_s: float, until_s: float, style: str) -> None:
        (left, top), (right, bottom) = self.at((since_s, self.y.high)), self.at((until_s, self.y.low))
        width = max(right - left, 1.5)
        self._drawn.append(
            f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}"/>'
        )

    def mark(self, at_s: float, style: str, label: str = "") -> None:
        """Draws a vertical line with a label above it. Labels that would overlap are stacked in rows."""
        x, bottom = self.at((at_s, self.y.low))
        y = self.top - 7 - _LABEL_ROW * (self._row(x, len(label) * _LABEL_WIDTH) if label else 0)
        first = y + 4 if label else self.top
        self._above.append(f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{first}" y2="{bottom:.1f}"/>')
        if label:
            anchor = "end" if x + len(label) * _LABEL_WIDTH > self.width else "start"
            self._above.append(
                f'<text class="label {style}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(label)}</text>'
            )

    def _row(self, x: float, width: float) -> int:
        left = x - width if x + width > self.width else x
        rows = (row for row, end in enumerate(self._labels_end) if end + 8 < left)
        row = next(rows, len(self._labels_end))
        self._labels_end[row : row + 1] = [left + width]
        return row

    def tick(self, at_s: float, style: str, hint: str) -> None:
        """Draws a small triangle on the time axis."""
        x, bottom = self.at((at_s, self.y.low))
        shape = f"M{x - 4:.1f},{bottom + 8:.1f}l4,-7l4,7z"
        self._above.append(f'<path class="{style}" d="{shape}"><title>{escape(hint)}</title></path>')

    def hints(self, texts: Sequence[tuple[float, str]], width_s: float) -> None:
        """Adds tooltips by time."""
        for at_s, text in texts:
            (left, _), (right, _) = self.at((at_s, self.y.low)), self.at((at_s + width_s, self.y.low))
            self._above.append(
                f'<rect class="hint" x="{left:.1f}" y="{self.top}" width="{max(right - left, 1):.1f}" '
                f'height="{self.y.length:.1f}"><title>{escape(text)}</title></rect>'
            )

    # ---- the element

    def svg(self) -> str:
        """The element for a page that has the style sheet."""
        return "\n".join([f"<svg {self._frame()}>", *self._content(), "</svg>"])

    def file(self) -> str:
        """A file of its own, which holds the style sheet and shows the title. It needs a ``top`` with room for that."""
        sheet = f"<style>{style()}svg {{ background: var(--card); }}</style>"
        heading = f'<text class="label" x="8" y="{16 - self._above_top}">{escape(self.title)}</text>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {self._frame()}>'
        return "\n".join([head, sheet, heading, *self._content(), "</svg>\n"])

    def _frame(self) -> str:
        above = self._above_top
        frame = f"0 {-above} {self.width} {self.height + above}"
        return f'viewBox="{frame}" role="img" aria-label="{escape(self.title)}"'

    @property
    def _above_top(self) -> int:
        return _LABEL_ROW * max(len(self._labels_end) - 1, 0)

    def _content(self) -> list[str]:
        return [*self._grid(), *self._drawn, *self._above]

    def _grid(self) -> Iterator[str]:
        right, bottom = self.width - _RIGHT, self.top + self.y.length
        for value in self.y.ticks(_TICKS_Y):
            y = self.at((0, value))[1]
            yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{self.show(value)}</text>'
        yield f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>'
        for second in self.x.ticks(_TICKS_X if self.width > 800 else 5):
            x = self.at((second, 0))[0]
            place = f'x="{x:.1f}" y="{bottom + 21:.1f}"'
            yield f'<text class="tick" {place} text-anchor="middle">{second:g}{self.unit}</text>'


def _pieces(points: Sequence[Point], gap_s: float) -> Iterator[list[Point]]:
    piece: list[Point] = []
    for point in points:
        if piece and point[0] - piece[-1][0] > gap_s:
            yield piece
            piece = []
        piece.append(point)
    if piece:
        yield piece


def _path(places: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
