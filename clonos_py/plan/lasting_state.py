"""State that nothing bounds but the number of keys: which operators keep it, and what would bound it."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.model.windows import LastRows
from clonos_py.plan.logical import (
    AggregateCounted,
    AggregateOver,
    AggregateTable,
    AggregateWindowTable,
    DistinctRows,
    JoinHistory,
    JoinVersions,
    LogicalGraph,
    Node,
    ReduceRows,
    RunProcess,
    TopCounted,
    TopTable,
)


def remedy(node: Node) -> str:
    """What bounds the state that an operator keeps for each key; empty if it keeps none for ever. Tables of tables hold
    what these hold, and a process with timers may delete its state."""
    match node.work:
        case AggregateTable(keys=[_, *_], weighted=False, ttl_us=None):
            return '.aggregate(...).ttl("7d")'
        case TopTable(keys=[_, *_], table_keys=None, ttl_us=None):
            return '.top(...).ttl("7d")'
        case DistinctRows(ttl_us=None):
            return 'distinct(..., ttl="7d")'
        case JoinHistory(bounds=None):
            return 'forever(ttl="7d")'
        case JoinVersions(oldest_us=None):
            return 'as_of(oldest="7d")'
        case AggregateOver(keys=[_, *_], last=LastRows()):
            return 'over(last("1h"))'
        case (
            AggregateCounted(keys=[_, *_])
            | TopCounted(keys=[_, *_])
            | ReduceRows(keys=[_, *_])
            | AggregateWindowTable(keys=[_, *_], window=None)
        ):
            return "a window of time"
        case RunProcess() as work if not work.declared.declared_timers:
            states = work.declared.declared_states.values()
            return 'state(ttl="7d")' if any(state.by_key and state.ttl_us is None for state in states) else ""
    return ""


def lasting_state(graph: LogicalGraph) -> Iterator[str]:
    """A note for each remedy, with the operators for which it is one."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        if needed := remedy(node):
            found.setdefault(needed, []).append(node.name)
    for needed, names in found.items():
        yield f"nothing bounds the state of {', '.join(names)} but the number of keys; {needed} would"
