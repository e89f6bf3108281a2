"""Decides which vertices can make their frames again instead of retaining them: those determined by source reads alone.

These are vertices of a source (every source can be read again) and operators without state, services and effects:
filters, projections, partial aggregates of one batch. For a user's function only the user can decide this, with
``deterministic``.
"""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.expressions.tree import ExpressionNode as Expression
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.user_functions import is_deterministic
from clonos_py.plan.chaining import DraftVertex
from clonos_py.plan.logical import CallPerBatch, CallPerRow, FilterRows, Node, ProjectColumns

_UNDECLARED = "calls a function that is not declared deterministic"


def obstacles(chain: DraftVertex, protocol: ProtocolProperties) -> Iterator[str]:
    """Why a chain that begins with a source has to retain its frames; empty if it need not."""
    if protocol.stores_frames:
        yield f"{protocol} checkpoints store frames in flight"
    for operator, origin in zip(chain.operators, chain.origins, strict=True):
        if origin is not None and (why := _obstacle(origin)):
            yield f"{operator.name!r} {why}"


def _obstacle(node: Node) -> str | None:
    match node.work:
        case FilterRows(predicate):
            return _undeclared(predicate)
        case ProjectColumns(columns):
            return next((why for _, made in columns if (why := _undeclared(made))), None)
        case CallPerBatch(gathered=tuple()):
            return "keeps rows"
        case CallPerRow(wants_ctx=True) | CallPerBatch(wants_ctx=True):
            return "takes ctx"
        case CallPerRow(waits=True):
            return "waits for answers"
        case CallPerRow(function=function) | CallPerBatch(function=function):
            return None if is_deterministic(function) else _UNDECLARED
        case _:
            return "has state or effects"


def _undeclared(expression: Expression) -> str | None:
    return None if all(map(is_deterministic, expression.functions())) else _UNDECLARED
