"""Plans drawn for people: the same boxes and arrows in every format."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pyarrow as pa
import pytest

from clonos_py import Job, col, count, tumbling
from clonos_py.cli.drawing import FORMATS, draw
from clonos_py.model.operators import EventTime, Operator, Source
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex, Wire
from clonos_py.plan.physical import plan
from clonos_py.settings.protocols import ALIGNED
from tests.unit.dsl.connectors import Nowhere, bids

BIDS = pa.schema([("auction", pa.int64()), ("price", pa.int64())])
SOURCE = SourcePlan("bids", Source, (BIDS,), EventTime((None,)))
PLAN = PhysicalPlan(
    job="hot <auctions>",
    vertices=(
        Vertex("bids", 2, SOURCE, (OperatorPlan("filter", "filter", Operator, (BIDS,)),), (Wire(-1, 0, 0, 0),)),
        Vertex("top", 2, None, (OperatorPlan("top", "aggregate", Operator, (BIDS,), stateful=True),), ()),
        Vertex("out", 1, None, (OperatorPlan('"out"', "sink", Operator, (), sink=True),), ()),
    ),
    edges=(
        Edge(0, "bids", 0, 0, "top", 0, 0, Partitioning.HASH, ("auction",), BIDS),
        Edge(1, "top", 0, 0, "out", 0, 0, Partitioning.REBALANCE, (), BIDS),
    ),
    protocol=ALIGNED,
    notes=("columns pruned: bids reads 2 of 7",),
)


def test_the_text_shows_chains_edges_and_the_decisions_of_the_planner() -> None:
    assert draw(PLAN, "text").splitlines() == [
        "hot <auctions>: 5 tasks, 5 standbys, 128 key groups, sharing depth full (2)",
        "",
        "bids x 2",
        "  source bids",
        "  filter",
        "  -> top: hash of auction, 2 columns: auction, price",
        "",
        "top x 2",
        "  aggregate top (keeps state)",
        "  -> out: rebalance, 2 columns: auction, price",
        "",
        "out x 1",
        '  sink "out"',
        "",
        "note: columns pruned: bids reads 2 of 7",
    ]


def test_the_mermaid_flowchart_has_a_node_per_vertex_and_quotes_special_characters() -> None:
    lines = draw(PLAN, "mermaid").splitlines()
    assert lines[0] == "flowchart LR"
    assert lines[3] == '  v2["<b>out x 1</b><br/>sink #quot;out#quot;"]'
    assert lines[4] == '  v0 -- "hash of auction<br/>2 columns: auction, price" --> v1'


def test_the_svg_is_well_formed_and_draws_columns_from_left_to_right() -> None:
    root = ElementTree.fromstring(draw(PLAN, "svg"))
    name = "{http://www.w3.org/2000/svg}"
    lefts = [float(rectangle.attrib["x"]) for rectangle in root.iter(f"{name}rect")]
    assert len(lefts) == 3
    assert lefts == sorted(lefts)
    texts = [text.text for text in root.iter(f"{name}text")]
    assert {"bids x 2", "hash of auction", 'sink "out"'} <= set(texts)


@pytest.mark.parametrize("format", FORMATS)
def test_a_plan_without_vertices_can_be_drawn(format: str) -> None:
    assert draw(PhysicalPlan("empty", (), (), protocol=ALIGNED), format)


@pytest.mark.parametrize("format", list(FORMATS))
def test_columns_that_the_engine_adds_are_not_shown(format: str) -> None:
    job = Job("hidden")
    keyed = bids(job).key_by("auction")
    bought, paid = count().where(col("bidder") == 1), (col("bidder") * 2).sum()
    windows, late = keyed.window(tumbling("10s")).aggregate(bought=bought, paid=paid).with_late()
    again = windows.window(tumbling("20s")).aggregate(most=col("bought").max()).named("again")
    again.key_by("most").window(tumbling("40s")).aggregate(n=count()).named("third").sink(Nowhere()).named("a")
    late.sink(Nowhere()).named("b")
    totals = keyed.aggregate(paid=paid, bought=bought).named("totals")
    totals.key_by("bought").top(3, by=(col("paid") + 1).desc()).named("top").sink(Nowhere(upserts=True, deletes=True))
    drawn = draw(plan(job, parallelism=2), format)
    assert "paid" in drawn
    assert re.findall(r"[~_](?:bought|paid|order|event_time|rows|pane|weight|change)|:(?:sum|count|max)", drawn) == []
