"""Draws a physical plan as text, as a Mermaid flowchart, or as an SVG picture.

All three show the same: a box per vertex with its chained operators, and an arrow per edge with its partitioning and
the columns that it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from textwrap import shorten

from clonos_py.cli.plan_layout import laid_out
from clonos_py.cli.plan_svg import picture
from clonos_py.model.aggregates import aggregate_of
from clonos_py.model.hidden import is_hidden
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan, Vertex
from clonos_py.model.tables import CHANGE_COLUMN
from clonos_py.observe.units import resources_text

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
    if plan.notes or plan.warnings:
        yield ""
        yield from (f"warning: {warning}" for warning in plan.warnings)
        yield from (f"note: {note}" for note in plan.notes)


def _headline(plan: PhysicalPlan) -> str:
    standbys = sum(vertex.parallelism * vertex.standbys for vertex in plan.vertices)
    depth = f"full ({plan.depth})" if plan.sharing_depth < 0 else str(plan.sharing_depth)
    return (
        f"{plan.job}: {len(plan.tasks)} tasks, {standbys} standbys, {plan.key_groups} key groups, sharing depth {depth}"
    )


def _title(vertex: Vertex) -> str:
    needs = f", each with {resources_text(vertex.resources)}" if vertex.resources else ""
    return f"{vertex.name} x {vertex.parallelism}{needs}"


def _operators(vertex: Vertex) -> list[str]:
    """The operators chained in the vertex, in the order in which rows pass them."""
    chain = [f"source {vertex.source.name}"] if vertex.source else []
    for operator in vertex.operators:
        kind = operator.verb if operator.name == operator.verb else f"{operator.verb} {operator.name}"
        state = " (keeps state for ever)" if operator.lasting else " (keeps state)" if operator.stateful else ""
        chain.append(kind + state)
    return chain


def _partitioning(edge: Edge) -> str:
    keys = f" of {', '.join(edge.keys)}" if edge.partitioning is Partitioning.HASH else ""
    return edge.partitioning.value + keys


def _columns(source: Vertex, edge: Edge) -> str:
    """The columns that an edge carries, by the names that the job uses."""
    names = list(_shown_columns(source, edge))
    plural = "column" if len(names) == 1 else "columns"
    listed = f": {', '.join(names)}" if names else ""
    return shorten(f"{len(names)} {plural}{listed}", _COLUMNS_WIDTH, placeholder=" ...")


def _shown_columns(source: Vertex, edge: Edge) -> dict[str, None]:
    """The columns of an edge without those that the engine adds; for partial results, the keys and aggregates."""
    names = [name for name in edge.schema.names if name != CHANGE_COLUMN]
    if edge.producer >= 0 and source.operators[edge.producer].verb == "combine":
        names = [aggregate_of(name) or name for name in names]
    return dict.fromkeys(name for name in names if not is_hidden(name))


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
    """Escapes text for a quoted label. Mermaid writes special characters as #name; entities."""
    return escape(text).replace("&", "#").replace("#amp;", "#38;").replace("#x27;", "#39;")


def as_svg(plan: PhysicalPlan) -> str:
    texts = {vertex.name: [_title(vertex), *_operators(vertex)] for vertex in plan.vertices}
    labels = {edge.id: _labels(plan, edge) for edge in plan.edges}
    return picture(_headline(plan), laid_out(plan, texts, labels), texts, labels)


def _labels(plan: PhysicalPlan, edge: Edge) -> tuple[str, ...]:
    if edge.feedback:
        return (f"fed back: {_partitioning(edge)}",)
    return _partitioning(edge), _columns(plan.by_name[edge.source], edge)


FORMATS: dict[str, Callable[[PhysicalPlan], str]] = {"text": as_text, "mermaid": as_mermaid, "svg": as_svg}
