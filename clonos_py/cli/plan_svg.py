"""Renders a physical plan as an SVG picture: a box for each vertex, an arrow for each edge."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from clonos_py.cli.plan_layout import LINE_HEIGHT, MARGIN, Box, DrawnPlan, Route

_STYLE = """
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24; }
  .title { font-weight: bold; } .label { fill: #57606a; font-size: 11px; }
  rect { fill: #f6f8fa; stroke: #8c959f; } path { fill: none; stroke: #57606a; }
  .feedback { stroke-dasharray: 5 4; }
"""
_ABOVE, _BELOW = -6, 14
"""The vertical offset of a label's text from its line, in pixels."""


def picture(title: str, drawn: DrawnPlan, texts: dict[str, list[str]], labels: dict[int, tuple[str, ...]]) -> str:
    size = f'width="{drawn.width:.0f}" height="{drawn.height:.0f}"'
    frame = f'viewBox="0 0 {drawn.width:.0f} {drawn.height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {frame}>',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8" /></marker>',
            *(_vertex(texts[name], box) for name, box in drawn.boxes.items()),
            *(_edge(route, labels[route.edge.id]) for route in drawn.routes),
            "</svg>",
        ]
    )


def _vertex(lines: Sequence[str], box: Box) -> str:
    texts = [
        _text(box.x + MARGIN, box.y + (number + 1) * LINE_HEIGHT, line, "" if number else "title")
        for number, line in enumerate(lines)
    ]
    frame = f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="4" />'
    return frame + "".join(texts)


def _edge(route: Route, labels: Sequence[str]) -> str:
    style, places = ('class="feedback" ', (_BELOW,)) if route.edge.feedback else ("", (_ABOVE, _BELOW))
    texts = [_text(route.x, route.y + dy, label, "label") for dy, label in zip(places, labels, strict=True)]
    return f'<path {style}d="{route.path}" marker-end="url(#head)" />' + "".join(texts)


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'
