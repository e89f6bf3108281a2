"""The shape of a physical plan as text, and pieces of jobs that several tests of plans share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clonos_py import Context, Job, Process, Record, Stream, forever
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, Rows, bids


def shape(planned: PhysicalPlan) -> list[str]:
    """Vertices with their chained operators, edges with keys and columns."""
    lines = []
    for vertex in planned.vertices:
        members = [vertex.source.name] if vertex.source else []
        members += [operator.name for operator in vertex.operators]
        lines.append(f"{vertex.name} x{vertex.parallelism}: {', '.join(members)}")
    for edge in planned.edges:
        how = f"{edge.partitioning.value}({', '.join(edge.keys)})" if edge.keys else edge.partitioning.value
        side = f" side {edge.side}" if edge.side else ""
        lines.append(f"{edge.source} -> {edge.target}{side} {how}: {', '.join(edge.schema.names)}")
    return lines


def nexmark(query: str, parallelism: int = 2, **settings: object) -> PhysicalPlan:
    return plan(build(query, NexmarkSource(1_000), Nowhere("out")), resolve({"parallelism": parallelism, **settings}))


class Label(Record):
    label: str


class Person(Record):
    id: int
    name: str
    city: str


def joined(job: Job) -> Stream[Any]:
    people = job.source(Rows(Person)).named("people")
    return people.join(bids(job).select("auction", "bidder", "note"), on=("id", "bidder"), within=forever())


def quick(row: Bid) -> Label:
    return Label("x")


class Watch(Process[Bid, Label]):
    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Label]:
        yield Label(bid.note or "")
