"""``seeds.iterate(step)``: rows that a step returns pass through it again (E11)."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import same_columns
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import (
    AggregateTable,
    AggregateWindows,
    AggregateWindowTable,
    JoinDeltas,
    JoinWindows,
    LoopHead,
    Node,
    Port,
    TopTable,
    TopWindows,
)


def loop_head(seeds: OutputPort, site: CallSite) -> OutputPort:
    """The input of a loop's step. Its rows have no event time: a row that comes back may be of any time."""
    return seeds.followed("iterate", LoopHead(), (seeds.schema,), site, (seeds.record,))


def closed_loop(head: OutputPort, back: OutputPort) -> None:
    """Closes the loop: rows of ``back`` enter it again at ``head``. Raises GraphError if this is impossible."""
    if different := same_columns(head.schema, back.schema):
        raise GraphError(
            f"rows that return to the loop have other columns than those that enter it: {different}; use select() in "
            "the step"
        )
    draft = head.draft
    behind = list(_before(draft, back.port))
    if head.node not in behind:
        raise GraphError(
            "the stream that the step returns does not depend on the stream that it takes, so this is not a loop; use "
            "union() for rows that only join it"
        )
    for node in behind:
        if isinstance(node.work, LoopHead) and node.work.tail is None and node.id != head.port.node:
            raise GraphError(
                f"this loop is inside the loop at {node.where}, or crosses it: rows may go round one loop at a time; "
                "write one loop whose rows say what is to be done with them"
            )
    for node in behind:
        _check_member(draft, node, head)
    head.changed(work=LoopHead(back.port))


def loop_before(rows: OutputPort) -> Node | None:
    """The head of a loop upstream of these rows; None if there is none."""
    return next((node for node in _before(rows.draft, rows.port) if isinstance(node.work, LoopHead)), None)


def _check_member(draft: Draft, node: Node, head: OutputPort) -> None:
    """Raises GraphError for an operator in the loop that emits rows only when its input ends. A loop ends when it has
    no rows left; such an operator would then start it again."""
    match node.work:
        case AggregateWindows() | TopWindows() | JoinWindows():
            pass
        case (
            AggregateTable(mode="at_end") | AggregateWindowTable() | TopTable(mode="at_end") | JoinDeltas(mode="at_end")
        ):
            pass
        case _:
            return
    if any(head.node in _before(draft, port) for port in node.inputs):
        raise GraphError(
            f"the {node.verb} at {node.where} is in the loop and gives rows when its input ends, when no loop is left; "
            "write it behind the loop, or use .changes() of a table"
        )


def _before(draft: Draft, port: Port) -> Iterator[Node]:
    """The node of a port and all nodes upstream of it. Feedback edges are not followed."""
    waiting, seen = [port.node], set[int]()
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            yield draft.nodes[number]
            waiting += [before.node for before in draft.nodes[number].inputs]
