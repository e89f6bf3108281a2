"""Notes on what a failure restarts and when sinks commit, one line each, for ``clonos plan`` (E2)."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.model.connectors import Delivery
from clonos_py.plan.logical import LogicalGraph, WriteSink
from clonos_py.settings.definitions import Guarantee, Settings

_SINKS = {
    Delivery.TRANSACTIONAL: "transactional sinks commit when a checkpoint is complete",
    Delivery.CAUSAL: "causal sinks show rows at once, and never withdraw them",
    Delivery.IDEMPOTENT: "idempotent sinks show rows at once, and write them again after a failure",
}

_ALONE = "transactional sinks commit when the snapshot of their own task counts"
_BEHIND_THE_LINE = "transactional sinks commit when the recovery line has passed their snapshot"


def recovery_notes(graph: LogicalGraph, settings: Settings) -> Iterator[str]:
    yield f"a failure restarts {_restarted(settings)}"
    found = {node.work.definition.delivery for node in graph.nodes if isinstance(node.work, WriteSink)}
    committed = _BEHIND_THE_LINE if settings.rollback else _ALONE
    alone = {Delivery.TRANSACTIONAL: committed} if not settings.protocol.coordinated else {}
    if lines := [line for delivery, line in {**_SINKS, **alone}.items() if delivery in found]:
        yield "; ".join(lines)


def _restarted(settings: Settings) -> str:
    match settings.guarantee:
        case Guarantee.EXACTLY_ONCE if not settings.protocol.coordinated and settings.rollback:
            return "the failed task and all tasks behind it, from their newest snapshots that fit together"
        case Guarantee.EXACTLY_ONCE if not settings.protocol.coordinated:
            return "the failed task only, which replays its log from its own last snapshot"
        case Guarantee.EXACTLY_ONCE if settings.rollback:
            return "all tasks, from the last completed checkpoint"
        case Guarantee.EXACTLY_ONCE:
            return "the failed task only, which replays its log from the last completed checkpoint"
        case Guarantee.AT_LEAST_ONCE:
            return "the failed task only, from the last completed checkpoint: what it sent since then counts twice"
        case Guarantee.AT_MOST_ONCE:
            return "the failed task only, which continues with new rows; those that it had not sent on are lost"
