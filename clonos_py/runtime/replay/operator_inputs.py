"""What the operators of a plan get: the columns by side, and the rows as a user's function sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from clonos_py.model.hidden import is_hidden
from clonos_py.model.plan import OperatorPlan, PhysicalPlan, Vertex
from clonos_py.model.record import Record, record_type
from clonos_py.plan.logical import CallPerBatch, CallPerRow, LogicalGraph, LookUpRows, Node, RunProcess

ADDED = frozenset({"combine", "drop late", "narrow"})
"""The verbs of operators that the planner adds."""


class Planned(NamedTuple):
    """An operator of a plan. ``node``: the verb of the job that it does; None for those that the planner adds."""

    vertex: Vertex
    number: int
    plan: OperatorPlan
    node: Node | None

    @property
    def calls_user(self) -> bool:
        """Whether a user's function gets its rows."""
        return self.node is not None and isinstance(self.node.work, CallPerRow | CallPerBatch | LookUpRows | RunProcess)

    def keys(self, side: int) -> tuple[str, ...]:
        """The columns of its key in the rows of a side; empty if it has none."""
        return (self.node.exchange(side) or ()) if self.node is not None else ()


def planned(plan: PhysicalPlan, graph: LogicalGraph) -> Iterator[Planned]:
    """All operators of a plan. ``graph``: the logical graph of the same job."""
    nodes = {node.name: node for node in graph.nodes}
    for vertex in plan.vertices:
        for number, operator in enumerate(vertex.operators):
            yield Planned(vertex, number, operator, None if operator.verb in ADDED else nodes.get(operator.name))


def input_schemas(plan: PhysicalPlan, operator: Planned) -> dict[int, pa.Schema]:
    """By side: the columns of the rows that the operator gets."""
    vertex, number = operator.vertex, operator.number
    found = {}
    for wire in vertex.wires:
        if wire.consumer == number:
            producer = vertex.operators[wire.producer] if wire.producer >= 0 else vertex.source
            assert producer is not None
            found[wire.side] = producer.schemas[wire.port]
    entering = {e.side: e.schema for e in plan.edges if e.target == vertex.name and e.consumer == number}
    return {**found, **entering}


def row_types(plan: PhysicalPlan, operator: Planned) -> Mapping[int, type[Record]]:
    """By side: the class of the rows, as the user's function gets them, or else with all columns of the job."""
    work = operator.node.work if operator.node is not None else None
    declared: dict[int, type[Record] | None] = {}
    if isinstance(work, CallPerRow):
        declared = {0: work.row_type}
    elif isinstance(work, RunProcess):
        declared = {side: taken.row_type for side, taken in enumerate(work.inputs)}
    schemas = input_schemas(plan, operator)
    return {side: declared.get(side) or record_type(_visible(schema)) for side, schema in schemas.items()}


def _visible(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if not is_hidden(field.name)])
