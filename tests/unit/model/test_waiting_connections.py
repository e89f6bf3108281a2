"""Which connections of a server wait, and which of them are closed when there are too many."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from clonos_py.model.waiting_connections import WaitingConnections

STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 5), st.integers(0, 3)), max_size=30)


@given(steps=STEPS, connections_max=st.integers(0, 6), others=st.integers(0, 6), limit_s=st.integers(0, 60))
def test_those_that_have_waited_longest_are_closed(
    steps: list[tuple[str, int, int]], connections_max: int, others: int, limit_s: int
) -> None:
    """``steps``: what happens to which connection, and how many seconds later."""
    waiting, since, now_s = WaitingConnections[int](), dict[int, tuple[int, int]](), 0
    for order, (step, connection, later_s) in enumerate(steps):
        now_s += later_s
        if step == "add":
            waiting.add(connection, now_s)
            since[connection] = now_s, order
        else:
            waiting.remove(connection)
            since.pop(connection, None)
    longest_first = sorted(since, key=lambda connection: since[connection])
    assert len(waiting) == len(since)
    assert waiting.longest_since_s == (since[longest_first[0]][0] if since else None)
    assert waiting.overdue(limit_s, now_s) == [c for c in longest_first if now_s - since[c][0] >= limit_s]
    closed = waiting.surplus(connections_max, others)
    assert closed == longest_first[: len(closed)]
    assert len(since) - len(closed) == min(len(since), max(0, connections_max - others))
