"""The layout of a drawn plan: positions of boxes, lines and labels, in pixels. Pure.

Vertices are placed in columns from left to right, each to the right of all its inputs. After each column, lines run
horizontally for the width of their labels, and bend only in a gap without labels. A line that passes a column has its
own row in it. So no line crosses a box or a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clonos_py.model.plan import Edge, PhysicalPlan

CHARACTER_WIDTH, LINE_HEIGHT, MARGIN = 7.3, 18, 12
_GAP, _BEND, _LABEL_HEIGHT, _FEEDBACK_HEIGHT = 28, 60, 40, 30
"""In pixels: the gap between boxes of a column, the width of bends, the height of an edge with two label lines, and the
height of a feedback edge."""


class Box(NamedTuple):
    """The rectangle of a vertex."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


class Route(NamedTuple):
    """The line of an edge. ``path``: SVG path data. The first label is above (x, y), the second below."""

    edge: Edge
    path: str
    x: float
    y: float


@dataclass(frozen=True)
class DrawnPlan:
    """A plan with its layout."""

    width: float
    height: float
    boxes: Mapping[str, Box]
    routes: Sequence[Route]


@dataclass(frozen=True)
class _Column:
    """A column of vertices. ``boxes_end``: the end of its widest box; ``labels_end``: where lines may bend again."""

    x: float
    boxes_end: float
    labels_end: float


def laid_out(plan: PhysicalPlan, texts: Mapping[str, Sequence[str]], labels: Mapping[int, Sequence[str]]) -> DrawnPlan:
    """Computes the layout. ``texts``: the lines in each vertex's box; ``labels``: those of each edge, by its id."""
    forward = [edge for edge in plan.edges if not edge.feedback]
    ranks = {vertex.name: _rank(plan, vertex.name) for vertex in plan.vertices}
    columns = _columns(plan, ranks, texts, labels)
    boxes, rows = _rows(plan, ranks, columns, texts)
    bottom = max((box.bottom for box in boxes.values()), default=0)
    bottom = max(bottom, *rows.values()) if rows else bottom
    routes = [_forward(edge, ranks, columns, boxes, rows, forward) for edge in forward]
    back = [edge for edge in plan.edges if edge.feedback]
    for number, edge in enumerate(back, 1):
        routes.append(_feedback(edge, columns[ranks[edge.source]], boxes, bottom + number * _FEEDBACK_HEIGHT))
    width = max((column.labels_end for column in columns), default=0) + MARGIN
    return DrawnPlan(width, bottom + len(back) * _FEEDBACK_HEIGHT + 2 * MARGIN, boxes, routes)


def text_width(text: str) -> float:
    return len(text) * CHARACTER_WIDTH


def _rank(plan: PhysicalPlan, vertex: str) -> int:
    """The length of the longest path to a vertex, without feedback edges."""
    before = [edge.source for edge in plan.edges if edge.target == vertex and not edge.feedback]
    return max((_rank(plan, source) + 1 for source in before), default=0)


def _columns(
    plan: PhysicalPlan,
    ranks: Mapping[str, int],
    texts: Mapping[str, Sequence[str]],
    labels: Mapping[int, Sequence[str]],
) -> list[_Column]:
    columns: list[_Column] = []
    x: float = MARGIN
    for rank in range(max(ranks.values(), default=-1) + 1):
        boxes_end = x + max(_box_width(texts[name]) for name, at in ranks.items() if at == rank)
        leaving = [edge for edge in plan.edges if ranks[edge.source] == rank and not edge.feedback]
        widest = max((text_width(line) for edge in leaving for line in labels[edge.id]), default=0.0)
        columns.append(_Column(x, boxes_end, boxes_end + (MARGIN + widest if leaving else 0)))
        x = columns[-1].labels_end + _BEND
    return columns


def _box_width(lines: Sequence[str]) -> float:
    return max(map(text_width, lines)) + 2 * MARGIN


def _rows(
    plan: PhysicalPlan, ranks: Mapping[str, int], columns: Sequence[_Column], texts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Box], dict[tuple[int, int], float]]:
    """The boxes, and by column and edge the height at which an edge passes a column between its ends."""
    boxes: dict[str, Box] = {}
    passing: dict[tuple[int, int], float] = {}
    for rank, column in enumerate(columns):
        y: float = MARGIN
        for name in (vertex.name for vertex in plan.vertices if ranks[vertex.name] == rank):
            leaving = sum(edge.source == name and not edge.feedback for edge in plan.edges)
            height = max(len(texts[name]) * LINE_HEIGHT + MARGIN, leaving * _LABEL_HEIGHT)
            boxes[name] = Box(column.x, y, _box_width(texts[name]), height)
            y += height + _GAP
        for edge in plan.edges:
            if not edge.feedback and ranks[edge.source] < rank < ranks[edge.target]:
                passing[rank, edge.id] = y
                y += LINE_HEIGHT
    return boxes, passing


def _forward(
    edge: Edge,
    ranks: Mapping[str, int],
    columns: Sequence[_Column],
    boxes: Mapping[str, Box],
    rows: Mapping[tuple[int, int], float],
    edges: Sequence[Edge],
) -> Route:
    leaving = [other.id for other in edges if other.source == edge.source]
    arriving = [other.id for other in edges if other.target == edge.target]
    first, source, target = columns[ranks[edge.source]], boxes[edge.source], boxes[edge.target]
    y = source.y + source.height * (leaving.index(edge.id) + 0.5) / len(leaving)
    path, at = f"M{source.right:.0f} {y:.0f}H{first.labels_end:.0f}", (first.labels_end, y)
    for rank in range(ranks[edge.source] + 1, ranks[edge.target]):
        row = rows[rank, edge.id]
        path += f"{_bend(at, (columns[rank].x, row))}H{columns[rank].labels_end:.0f}"
        at = columns[rank].labels_end, row
    end = target.x, target.y + target.height * (arriving.index(edge.id) + 0.5) / len(arriving)
    return Route(edge, path + _bend(at, end), first.boxes_end + MARGIN, y)


def _bend(start: tuple[float, float], end: tuple[float, float]) -> str:
    middle = (start[0] + end[0]) / 2
    return f"C{middle:.0f} {start[1]:.0f} {middle:.0f} {end[1]:.0f} {end[0]:.0f} {end[1]:.0f}"


def _feedback(edge: Edge, column: _Column, boxes: Mapping[str, Box], low: float) -> Route:
    """The route of a feedback edge: below all boxes, rising between boxes and labels. Its label is below the line."""
    source, target = boxes[edge.source], boxes[edge.target]
    left, right = target.x - MARGIN / 2, column.boxes_end + MARGIN / 2
    path = f"M{source.right:.0f} {source.bottom - 4:.0f}H{right:.0f}V{low:.0f}H{left:.0f}V{target.bottom - 4:.0f}"
    return Route(edge, f"{path}H{target.x:.0f}", target.x, low)
