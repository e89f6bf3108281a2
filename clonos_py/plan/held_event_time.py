"""Warnings of streams without event time that are brought together with streams that have one.

The watermark of an operator is the lowest of its inputs. A source without event time has none until it ends. So
windows, event-time joins and timers behind such an operator give no result before that, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from clonos_py.model.windows import OnChange
from clonos_py.plan.logical import (
    AggregateOver,
    AggregateWindows,
    AggregateWindowTable,
    AssignEventTimes,
    CallPerWindow,
    JoinHistory,
    JoinVersions,
    JoinWindows,
    LogicalGraph,
    Node,
    ReadSource,
    RunProcess,
    SortRows,
    TopWindows,
)


class _Reached(NamedTuple):
    """What reaches a node. ``timed``: rows with event time. ``untimed``: sources that hold its watermark back.
    ``held``: of these, the ones that were brought together with timed rows, each with the node that did so."""

    timed: bool = False
    untimed: frozenset[int] = frozenset()
    held: frozenset[tuple[int, int]] = frozenset()


def held_event_time(graph: LogicalGraph) -> Iterator[str]:
    """One line for each source that holds event time back, with the operators that wait and the remedy."""
    reached: dict[int, _Reached] = {}
    waiting: dict[tuple[int, int], list[str]] = {}
    for node in graph.nodes:
        holding = [port for side, port in enumerate(node.inputs) if not node.untimed(side)]
        reached[node.id] = found = _reached(node, [reached[port.node] for port in holding])
        if _waits(node.work):
            for pair in sorted(found.held):
                waiting.setdefault(pair, []).append(repr(node.name))
    reported: set[int] = set()
    for (source, where), names in waiting.items():
        if source not in reported:
            reported.add(source)
            yield _warning(graph.by_id[source], graph.by_id[where], names)


def _reached(node: Node, inputs: list[_Reached]) -> _Reached:
    match node.work:
        case ReadSource(event_time=time):
            timed = any(time.columns)
            return _Reached(timed, frozenset() if timed or time.idle_us is not None else frozenset([node.id]))
        case AssignEventTimes():
            return _Reached(timed=True)
    held = {pair for one in inputs for pair in one.held}
    for one in inputs:
        timed_without = {source for other in inputs if other.timed for source in one.untimed - other.untimed}
        held |= {(source, node.id) for source in timed_without}
    untimed = frozenset(source for one in inputs for source in one.untimed)
    return _Reached(any(one.timed for one in inputs), untimed, frozenset(held))


def _waits(work: Any) -> bool:
    """Whether results are emitted when the watermark passes."""
    match work:
        case AggregateWindows(window=window) | JoinWindows(window=window):
            return not window.processing_time
        case AggregateWindowTable(emit=OnChange()):
            return work.mode == "at_end"
        case AggregateWindowTable(time_column=time):
            return time is not None
        case TopWindows() | CallPerWindow() | AggregateOver() | SortRows() | JoinVersions():
            return True
        case JoinHistory(bounds=tuple(), how=how):
            return any(how.unmatched)
        case RunProcess():
            return work.in_order or any(not t.processing_time for t in work.declared.declared_timers.values())
        case _:
            return False


def _warning(source: Node, where: Node, names: list[str]) -> str:
    waiting = f"{', '.join(names)} wait{'s' if len(names) == 1 else ''}"
    return (
        f"{source.where}: source {source.name!r} has no event time, and {where.name!r} brings its rows together with "
        f"rows that have one: {waiting} until {source.name!r} ends; give it an event time, such as "
        "job.source(..., event_time='at'), or idle='5s', so that it holds nothing back while it is silent"
    )
