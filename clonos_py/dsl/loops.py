"""``seeds.iterate(step)``: rows that a step gives back go through it again (E11)."""

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
    JoinWindows,
    LoopHead,
    Node,
    Port,
    TopTable,
    TopWindows,
)


def loop_head(seeds: OutputPort, site: CallSite) -> OutputPort:
    """What the step of a loop is given. Its rows have no event time: one that comes back may be of any time."""
    return seeds.followed("iterate", LoopHead(), (seeds.schema,), site, (seeds.record,))


def closed_loop(head: OutputPort, back: OutputPort) -> None:
    """From now on the rows of ``back`` come out of ``head``, too. Raises GraphError where they cannot."""
    if different := same_columns(head.schema, back.schema):
        raise GraphError(
            f"rows that go round the loop differ from those that enter it: {different}; select() in the step brings "
            "them into line"
        )
    draft = head.draft
    behind = list(_before(draft, back.port))
    if head.node not in behind:
        raise GraphError(
            "what the step gives back does not come from the stream that it is given, so this is no loop; write "
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
    """The head of a loop that rows come from, None if they come from none."""
    return next((node for node in _before(rows.draft, rows.port) if isinstance(node.work, LoopHead)), None)


def _check_member(draft: Draft, node: Node, head: OutputPort) -> None:
    """A loop ends when no rows are left in it. What gives rows only then would begin it again."""
    match node.work:
        case AggregateWindows() | TopWindows() | JoinWindows():
            pass
        case AggregateTable(mode="at_end") | TopTable(mode="at_end"):
            pass
        case _:
            return
    if any(head.node in _before(draft, port) for port in node.inputs):
        raise GraphError(
            f"the {node.verb} at {node.where} is in the loop and gives rows when its input ends, when no loop is left; "
            "write it behind the loop, or use .changes() of a table"
        )


def _before(draft: Draft, port: Port) -> Iterator[Node]:
    """The node of a port, and all from which its rows come, round no loop."""
    waiting, seen = [port.node], set[int]()
    while waiting:
        number = waiting.pop()
        if number not in seen:
            seen.add(number)
            yield draft.nodes[number]
            waiting += [before.node for before in draft.nodes[number].inputs]
