"""A loop of two vertices for tests of its tasks: rows enter at the head, go to the body, and come back."""

from __future__ import annotations

from functools import partial

from clonos_py.model.ids import TaskId
from clonos_py.model.operators import EventTime, Source
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.settings.protocols import ALIGNED
from tests.unit.task.plans import SCHEMA, Seen

FEED, HEAD, BODY, OUT = (TaskId(name, 0) for name in ("feed", "head", "body", "out"))
ENTRY, BACK = 0, 1
"""Inputs of the head."""


def looping(heads: int = 1, protocol: ProtocolProperties = ALIGNED) -> PhysicalPlan:
    """feed -> head -> body -> out, and from the body back to the head."""
    vertices = (
        Vertex("feed", 1, SourcePlan("feed", Source, (SCHEMA,), EventTime((None,))), (), ()),
        Vertex("head", heads, None, (OperatorPlan("head", "iterate", partial(Seen), (SCHEMA,)),), ()),
        Vertex("body", 1, None, (OperatorPlan("body", "map", partial(Seen), (SCHEMA,)),), ()),
        Vertex("out", 1, None, (OperatorPlan("out", "sink", partial(Seen), (), sink=True),), ()),
    )
    edges = (
        Edge(0, "feed", -1, 0, "head", 0, 0, Partitioning.REBALANCE, (), SCHEMA),
        Edge(1, "head", 0, 0, "body", 0, 0, Partitioning.REBALANCE, (), SCHEMA),
        Edge(2, "body", 0, 0, "head", 0, 1, Partitioning.REBALANCE, (), SCHEMA, feedback=True),
        Edge(3, "body", 0, 0, "out", 0, 0, Partitioning.REBALANCE, (), SCHEMA),
    )
    return PhysicalPlan("looping", vertices, edges, protocol=protocol)
