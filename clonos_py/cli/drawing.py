"""A physical plan drawn for people: as text, as a Mermaid flowchart, as an SVG picture.

All three show the same: a box per vertex with the operators chained in it, an arrow per edge with how rows are
partitioned and which columns travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from textwrap import shorten
from typing import NamedTuple

from clonos_py.model.hidden import is_hidden
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan, Vertex
from clonos_py.model.tables import CHANGE_COLUMN, WEIGHT_COLUMN

_COLUMNS_WIDTH = 60


def draw(plan: PhysicalPlan, format: str) -> str:
    """The plan in one of ``FORMATS``."""
    return FORMATS[format](plan)


def as_text(plan: PhysicalPlan) -> str:
    return "\n".join(_text_lines(plan))


def _text_lines(plan: PhysicalPlan) -> Iterator[str]:
    yield _headline(plan)
    for vertex in plan.vertices:
        yield ""
        yield _title(vertex)
        yield from (f"  {operator}" for operator in _operators(vertex))
        for edge in plan.edges:
            if edge.source == vertex.name:
                arrow = "=> back to" if edge.feedback else "->"
                yield f"  {arrow} {edge.target}: {_partitioning(edge)}, {_columns(vertex, edge)}"
    if plan.notes:
        yield ""
        yield from (f"note: {note}" for note in plan.notes)


def _headline(plan: PhysicalPlan) -> str:
    standbys = sum(vertex.parallelism * vertex.standbys for vertex in plan.vertices)
    depth = f"full ({plan.depth})" if plan.sharing_depth < 0 else str(plan.sharing_depth)
    return (
        f"{plan.job}: {len(plan.tasks)} tasks, {standbys} standbys, {plan.key_groups} key groups, sharing depth {depth}"
    )


def _title(vertex: Vertex) -> str:
    return f"{vertex.name} x {vertex.parallelism}"


def _operators(vertex: Vertex) -> list[str]:
    """What is chained in the vertex, in the order rows pass."""
    chain = [f"source {vertex.source.name}"] if vertex.source else []
    for operator in vertex.operators:
        kind = operator.verb if operator.name == operator.verb else f"{operator.verb} {operator.name}"
        chain.append(kind + (" (keeps state)" if operator.stateful else ""))
    return chain


def _partitioning(edge: Edge) -> str:
    keys = f" of {', '.join(edge.keys)}" if edge.partitioning is Partitioning.HASH else ""
    return edge.partitioning.value + keys


def _columns(source: Vertex, edge: Edge) -> str:
    """What travels, as the job has it."""
    names = list(_shown_columns(source, edge))
    plural = "column" if len(names) == 1 else "columns"
    listed = f": {', '.join(names)}" if names else ""
    return shorten(f"{len(names)} {plural}{listed}", _COLUMNS_WIDTH, placeholder=" ...")


def _shown_columns(source: Vertex, edge: Edge) -> dict[str, None]:
    """The columns of an edge without what the engine adds for itself; of partial results the keys and aggregates."""
    names = [name for name in edge.schema.names if not is_hidden(name) and name not in (WEIGHT_COLUMN, CHANGE_COLUMN)]
    if edge.producer >= 0 and source.operators[edge.producer].verb == "combine":
        names = [name for name in names if name in edge.keys or not name.startswith("_")]
        names = [name.rpartition(":")[0] or name for name in names]
    return dict.fromkeys(names)


def as_mermaid(plan: PhysicalPlan) -> str:
    return "\n".join(_mermaid_lines(plan))


def _mermaid_lines(plan: PhysicalPlan) -> Iterator[str]:
    places = {vertex.name: f"v{position}" for position, vertex in enumerate(plan.vertices)}
    yield "flowchart LR"
    for vertex in plan.vertices:
        label = "<br/>".join([f"<b>{_mermaid(_title(vertex))}</b>", *map(_mermaid, _operators(vertex))])
        yield f'  {places[vertex.name]}["{label}"]'
    for edge in plan.edges:
        label = f"{_mermaid(_partitioning(edge))}<br/>{_mermaid(_columns(plan.by_name[edge.source], edge))}"
        line, arrow = ("-.", ".->") if edge.feedback else ("--", "-->")
        yield f'  {places[edge.source]} {line} "{label}" {arrow} {places[edge.target]}'


def _mermaid(text: str) -> str:
    """Text inside a quoted label: Mermaid writes special characters as #name; entities."""
    return escape(text).replace("&", "#").replace("#amp;", "#38;").replace("#x27;", "#39;")


_CHARACTER_WIDTH, _LINE_HEIGHT, _MARGIN, _GAP = 7.3, 18, 12, 40
_SVG_STYLE = """
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1b1f24; }
  .title { font-weight: bold; } .label { fill: #57606a; font-size: 11px; }
  rect { fill: #f6f8fa; stroke: #8c959f; } path { fill: none; stroke: #57606a; }
  .feedback { stroke-dasharray: 5 4; }
"""


class _Box(NamedTuple):
    """Where a vertex is drawn."""

    x: float
    y: float
    width: float
    height: float


def as_svg(plan: PhysicalPlan) -> str:
    boxes = _boxes(plan)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + box.height for box in boxes.values()), default=0) + _MARGIN
    height += _GAP if plan.loops else 0
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(_headline(plan))}</title><style>{_SVG_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8" /></marker>',
            *(_svg_vertex(vertex, boxes[vertex.name]) for vertex in plan.vertices),
            *(_svg_edge(plan, edge, boxes) for edge in plan.edges),
            "</svg>",
        ]
    )


def _boxes(plan: PhysicalPlan) -> dict[str, _Box]:
    """Vertices in columns from left to right: each one right of everything it reads from."""
    columns: dict[int, list[Vertex]] = {}
    for vertex in plan.vertices:
        columns.setdefault(_rank(plan, vertex.name), []).append(vertex)
    boxes: dict[str, _Box] = {}
    x: float = _MARGIN
    for rank in sorted(columns):
        y: float = _MARGIN
        for vertex in columns[rank]:
            lines = [_title(vertex), *_operators(vertex)]
            width = max(map(len, lines)) * _CHARACTER_WIDTH + 2 * _MARGIN
            boxes[vertex.name] = _Box(x, y, width, len(lines) * _LINE_HEIGHT + _MARGIN)
            y += boxes[vertex.name].height + _GAP
        labels = [label for edge in plan.edges if _rank(plan, edge.source) == rank for label in _labels(plan, edge)]
        x += max(boxes[vertex.name].width for vertex in columns[rank])
        x += max(map(len, labels), default=0) * _CHARACTER_WIDTH + 2 * _MARGIN
    return boxes


def _rank(plan: PhysicalPlan, vertex: str) -> int:
    """The length of the longest path that leads to a vertex, round no loop."""
    before = [edge.source for edge in plan.edges if edge.target == vertex and not edge.feedback]
    return max((_rank(plan, source) + 1 for source in before), default=0)


def _labels(plan: PhysicalPlan, edge: Edge) -> tuple[str, str]:
    return _partitioning(edge), _columns(plan.by_name[edge.source], edge)


def _svg_vertex(vertex: Vertex, box: _Box) -> str:
    lines = [_title(vertex), *_operators(vertex)]
    texts = [
        _svg_text(box.x + _MARGIN, box.y + (number + 1) * _LINE_HEIGHT, line, "" if number else "title")
        for number, line in enumerate(lines)
    ]
    frame = f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="4" />'
    return frame + "".join(texts)


def _svg_edge(plan: PhysicalPlan, edge: Edge, boxes: dict[str, _Box]) -> str:
    source, target = boxes[edge.source], boxes[edge.target]
    above, below = _labels(plan, edge)
    if edge.feedback:
        return _svg_feedback(source, target, above)
    start_x, start_y = source.x + source.width, source.y + source.height / 2
    end_x, end_y = target.x, target.y + target.height / 2
    middle_x, label_y = (start_x + end_x) / 2, (start_y + end_y) / 2
    curve = (
        f"M{start_x:.0f} {start_y:.0f}C{middle_x:.0f} {start_y:.0f} {middle_x:.0f} {end_y:.0f} {end_x:.0f} {end_y:.0f}"
    )
    return (
        f'<path d="{curve}" marker-end="url(#head)" />'
        + _svg_text(start_x + _MARGIN, label_y - 6, above, "label")
        + _svg_text(start_x + _MARGIN, label_y + 14, below, "label")
    )


def _svg_feedback(source: _Box, target: _Box, label: str) -> str:
    """Leads back below the boxes."""
    start_x, end_x = source.x + source.width / 2, target.x + target.width / 2
    start_y, end_y = source.y + source.height, target.y + target.height
    low = max(start_y, end_y) + _GAP
    curve = f"M{start_x:.0f} {start_y:.0f}C{start_x:.0f} {low:.0f} {end_x:.0f} {low:.0f} {end_x:.0f} {end_y:.0f}"
    return f'<path class="feedback" d="{curve}" marker-end="url(#head)" />' + _svg_text(
        (start_x + end_x) / 2, low - 6, f"fed back: {label}", "label"
    )


def _svg_text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'


FORMATS: dict[str, Callable[[PhysicalPlan], str]] = {"text": as_text, "mermaid": as_mermaid, "svg": as_svg}
