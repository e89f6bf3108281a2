"""Co-located rows: columns by which the rows of a node are already partitioned, so that no shuffle is needed.

The output of a join or an aggregate by key is where the rows of that key are. This holds for the columns that carry the
key on, under any name, in the order in which they are hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos_py.expressions.tree import Column
from clonos_py.model.joins import JoinType
from clonos_py.plan.logical import (
    GROUPING,
    JOINING,
    DistinctRows,
    FilterRows,
    JoinDeltas,
    LookUpRows,
    MergeDeltas,
    Node,
    ProjectColumns,
    ReduceRows,
    ShowChanges,
    SortRows,
)

Keys = frozenset[tuple[str, ...]]


def colocated(node: Node, before: Mapping[int, Keys]) -> Keys:
    """The lists of columns by which a node's main output is co-located. ``before``: those of the nodes before it."""
    match node.work:
        case _ if isinstance(node.work, JOINING | JoinDeltas):
            return _joined(node.work)
        case SortRows(keys=keys) | ReduceRows(keys=keys) | DistinctRows(keys=keys) | LookUpRows(keys=keys):
            return _known([keys] if set(keys) <= set(node.schemas[0].names) else [])
        case FilterRows() | ShowChanges() | MergeDeltas() if not node.inputs[0].port:
            return before[node.inputs[0].node]
        case ProjectColumns(columns=made) if not node.inputs[0].port:
            names = {origin.column: name for name, origin in made if isinstance(origin, Column)}
            return _known(tuple(map(names.get, keys)) for keys in before[node.inputs[0].node])
        case _ if isinstance(node.work, GROUPING):
            return _known([node.work.keys] if set(node.work.keys) <= set(node.schemas[0].names) else [])
    return frozenset()


def _joined(work: JOINING | JoinDeltas) -> Keys:
    """The keys of either side, unless rows of the result may lack that side: these are where the key of the other side
    is. A full join takes keys of the same name from the side that is there."""
    origins = {(side, column): name for name, side, column in work.columns}
    both = (work.left_keys, work.right_keys)
    given = [not nullable for nullable in work.how.nullable]
    if work.how is JoinType.FULL and work.left_keys == work.right_keys:
        given = [True, False]
    return _known(tuple(origins.get((side, key)) for key in keys) for side, keys in enumerate(both) if given[side])


def needs_no_shuffle(node: Node, before: Mapping[int, Keys]) -> bool:
    """Whether the rows that an aggregate brings together are co-located already."""
    return isinstance(node.work, GROUPING) and node.work.keys in before[node.inputs[0].node] and not node.inputs[0].port


def _known(found: Iterable[tuple[str | None, ...]]) -> Keys:
    return frozenset(keys for keys in found if keys and None not in keys)  # type: ignore[misc]
