"""The picture of a plan: no line crosses a label or a box, no two labels overlap, and all is inside the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

import pytest

from clonos_py import Job, Stream, col
from clonos_py.cli.drawing import draw
from clonos_py.cli.plan_layout import text_width
from clonos_py.evaluation.nexmark.jobs import QUERIES, build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Nowhere, bids

_NAME = "{http://www.w3.org/2000/svg}"
_TEXT_HEIGHT, _SAMPLES = 10, 40


class Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Area) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def has(self, x: float, y: float) -> bool:
        """Compares with a tolerance of a pixel: places are rounded."""
        return self.left + 1 < x < self.right - 1 and self.top + 1 < y < self.bottom - 1


class Picture:
    """The elements of an SVG picture that must not overlap."""

    def __init__(self, svg: str) -> None:
        root = ElementTree.fromstring(svg)
        self.size = Area(0, 0, float(root.attrib["width"]), float(root.attrib["height"]))
        self.labels = [self._label(e) for e in root.iter(f"{_NAME}text") if e.get("class") == "label"]
        self.boxes = [self._box(e) for e in root.iter(f"{_NAME}rect")]
        self.lines = [list(points(e.attrib["d"])) for e in root.iter(f"{_NAME}path") if e.get("marker-end")]

    def _label(self, element: ElementTree.Element) -> Area:
        x, y = float(element.attrib["x"]), float(element.attrib["y"])
        return Area(x, y - _TEXT_HEIGHT, x + text_width(element.text or ""), y)

    def _box(self, element: ElementTree.Element) -> Area:
        x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        return Area(x, y, x + width, y + height)

    def faults(self) -> Iterator[str]:
        for line in self.lines:
            for x, y in line:
                if any(area.has(x, y) for area in (*self.labels, *self.boxes)) or not self.size.has(x, y):
                    yield f"a line at {x:.0f}, {y:.0f}"
        for one, other in combinations([*self.labels, *self.boxes], 2):
            if one.meets(other):
                yield f"{one} and {other}"
        yield from (f"{area} is outside" for area in (*self.labels, *self.boxes) if area.right > self.size.right)


def points(path: str) -> Iterator[tuple[float, float]]:
    """Points along a path of M, H, V and C commands, close together."""
    x = y = 0.0
    for command, numbers in re.findall(r"([MHVC])([^MHVC]*)", path):
        given = [float(number) for number in numbers.split()]
        for step in range(_SAMPLES + 1):
            t = step / _SAMPLES
            match command:
                case "H":
                    yield x + (given[0] - x) * t, y
                case "V":
                    yield x, y + (given[0] - y) * t
                case "C":
                    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
                    xs, ys = (x, *given[::2]), (y, *given[1::2])
                    yield sum(map(float.__mul__, weights, xs)), sum(map(float.__mul__, weights, ys))
                case _:
                    pass
        x = {"H": given[0], "V": x}.get(command, given[-2] if len(given) > 1 else x)
        y = {"V": given[0], "H": y}.get(command, given[-1])


def drawn(job: Job) -> Picture:
    return Picture(draw(plan(job, resolve(command_line={"parallelism": 2})), "svg"))


@pytest.mark.parametrize("query", QUERIES)
def test_no_line_of_a_query_crosses_a_label_or_a_box(query: str) -> None:
    picture = drawn(build(query, NexmarkSource(events=10), Nowhere()))
    assert list(picture.faults()) == []


def test_lines_past_a_column_and_lines_back_cross_no_label_or_box() -> None:
    def step(entering: Stream[object]) -> tuple[Stream[object], Stream[object]]:
        return entering.filter(col("price") < 100), entering.filter(col("price") >= 100)

    job = Job("crossing")
    read = bids(job)
    tops = [read.key_by("auction").top(n, by="price").named(f"top{n}").changes(kind="change") for n in (1, 2)]
    again = tops[0].key_by("bidder").top(2, by="price").named("again").changes(kind="kind")
    looped = read.iterate(step)
    for number, stream in enumerate((read.rebalance(), *tops, again, looped)):
        stream.select("auction", "price").rebalance().union(read.select("auction", "price")).sink(Nowhere()).named(
            f"sink{number}"
        ).parallelism(1)
    picture = drawn(job)
    assert len(picture.lines) > len(picture.boxes)
    assert list(picture.faults()) == []


def test_the_check_finds_a_line_through_a_label() -> None:
    svg = draw(plan(build("q8", NexmarkSource(events=10), Nowhere()), resolve()), "svg")
    x, y = re.findall(r'class="label" x="(\d+)" y="(\d+)"', svg)[0]
    through = f'<path d="M{x} {int(y) - 5}H{int(x) + 50}" marker-end="url(#head)" /></svg>'
    assert list(Picture(svg.replace("</svg>", through)).faults())


def test_points_lie_along_a_path() -> None:
    found = list(pairwise(points("M0 0H10V10C10 20 20 20 20 10")))
    assert found[0][0] == (0.0, 0.0)
    assert found[-1][1] == (20.0, 10.0)
