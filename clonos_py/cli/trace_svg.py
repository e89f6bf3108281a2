"""Renders the way of a row as an SVG picture: a box for each operator with its rows, sources on the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from textwrap import shorten, wrap
from typing import TYPE_CHECKING

from clonos_py.cli.plan_layout import CHARACTER_WIDTH, LINE_HEIGHT, MARGIN, Box
from clonos_py.operators.failures import as_text

if TYPE_CHECKING:
    from clonos_py.runtime.replay.provenance import TraceStep

_STYLE = """
  svg { background: #ffffff; }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24; }
  .title { font-weight: bold; } .how { fill: #57606a; }
  rect { fill: #f6f8fa; stroke: #8c959f; } .atmost { stroke-dasharray: 5 4; } path { fill: none; stroke: #57606a; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; } text { fill: #e6edf3; } .how { fill: #9198a1; }
    rect { fill: #161b22; stroke: #6e7681; } path { stroke: #9198a1; }
  }
"""
_GAP, _BEND, _CHARACTERS_MAX = 24, 56, 64
"""In pixels: between boxes of a column, and between columns; and the longest line of a box, in characters."""


def picture(title: str, steps: Sequence[TraceStep], depths: Mapping[str, int]) -> str:
    """``depths``: by operator, its distance from the sink. A dashed box has rows that need not have made those behind
    it."""
    texts = {step.operator: _lines(step) for step in steps}
    boxes = _boxes(texts, depths)
    width = max(box.right for box in boxes.values()) + MARGIN
    bottom = max(box.bottom for box in boxes.values()) + MARGIN
    lines = [(boxes[step.operator], boxes[name]) for step in steps for name in step.before if name in boxes]
    far = [line for line in lines if not _adjacent(*line)]
    below = {line: bottom + number * MARGIN for number, line in enumerate(far)}
    height = bottom + len(far) * MARGIN
    exact = {step.operator: step.exact for step in steps}
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8" /></marker>',
            *(_line(*line, below.get(line, bottom)) for line in lines),
            *(_box(texts[name], box, exact[name]) for name, box in boxes.items()),
            "</svg>",
        ]
    )


def _lines(step: TraceStep) -> list[tuple[str, str]]:
    """The lines of a box, each with its style."""
    rows = "1 row" if step.count == 1 else f"{step.count:,} rows"
    title = f"{step.operator}: {'' if step.exact else 'at most '}{rows}"
    how = [line for text in (*step.how, *step.notes) for line in wrap(text, _CHARACTERS_MAX)]
    more = step.count - len(step.rows) if step.rows else 0
    return [
        (shorten(title, _CHARACTERS_MAX, placeholder=" ..."), "title"),
        *((line, "how") for line in how),
        *((_cut(frames), "how") for frames in step.frames),
        *((_cut(f"called with {as_text(row)}"), "") for row in step.called),
        *((_cut(as_text(row)), "") for row in step.rows),
        *([(f"and {more:,} more", "how")] if more > 0 else []),
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS_MAX else f"{text[: _CHARACTERS_MAX - 3]}..."


def _boxes(texts: Mapping[str, Sequence[tuple[str, str]]], depths: Mapping[str, int]) -> dict[str, Box]:
    x, boxes = float(MARGIN), {}
    for depth in sorted(set(depths.values()), reverse=True):
        names = [name for name in texts if depths[name] == depth]
        widest = max(len(line) for name in names for line, _ in texts[name]) * CHARACTER_WIDTH + 2 * MARGIN
        y = float(MARGIN)
        for name in names:
            height = len(texts[name]) * LINE_HEIGHT + MARGIN
            boxes[name] = Box(x, y, widest, height)
            y += height + _GAP
        x += widest + _BEND
    return boxes


def _box(lines: Sequence[tuple[str, str]], box: Box, exact: bool) -> str:
    style = "" if exact else ' class="atmost"'
    frame = f'<rect{style} x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="4" />'
    return frame + "".join(
        f'<text class="{style}" x="{box.x + MARGIN:.0f}" y="{box.y + (number + 1) * LINE_HEIGHT:.0f}">'
        f"{escape(line)}</text>"
        for number, (line, style) in enumerate(lines)
    )


def _line(start: Box, end: Box, below: float) -> str:
    """A line to the next column, or below all boxes to a later one: it crosses no box."""
    y, to, middle = start.y + LINE_HEIGHT, end.y + LINE_HEIGHT, end.x - _BEND / 2
    path = f"M{start.right:.0f} {y:.0f}H{middle - 10:.0f}L{middle + 10:.0f} {to:.0f}H{end.x:.0f}"
    if not _adjacent(start, end):
        path = f"M{start.right:.0f} {y:.0f}h14V{below:.0f}H{middle:.0f}V{to:.0f}H{end.x:.0f}"
    return f'<path d="{path}" marker-end="url(#head)" />'


def _adjacent(start: Box, end: Box) -> bool:
    return end.x - start.right <= _BEND + 1
