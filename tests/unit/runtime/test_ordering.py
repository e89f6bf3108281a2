"""The order of control messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.runtime.ray.ordering import InOrder


@given(st.permutations(range(12)))
def test_messages_that_arrive_in_any_order_are_passed_on_in_their_own(arrivals: list[int]) -> None:
    taken: list[str] = []
    inbox = InOrder(taken.append)
    for number in arrivals:
        inbox.take(number, f"message {number}")
        assert taken == [f"message {n}" for n in range(len(taken))]
    assert len(taken) == 12


def test_a_message_waits_for_those_before_it() -> None:
    taken: list[str] = []
    inbox = InOrder(taken.append)
    inbox.take(1, "second")
    assert taken == []
    inbox.take(0, "first")
    assert taken == ["first", "second"]
