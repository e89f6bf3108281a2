"""Plans whose reads and frames stay as small as the source gives them, so that failures come between."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.model.plan import PhysicalPlan


def in_small_pieces(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan without merging of small reads and frames."""
    vertices = [
        replace(vertex, source=vertex.source and replace(vertex.source, merge_rows=0, adaptive=False))
        for vertex in plan.vertices
    ]
    edges = [replace(edge, merge_rows=0, adaptive=False) for edge in plan.edges]
    return replace(plan, vertices=tuple(vertices), edges=tuple(edges))
