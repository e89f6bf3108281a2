"""Which subscriptions of receivers are served, and which connections are closed."""

from __future__ import annotations

import pytest

from clonos_py.link import instructions as io
from clonos_py.link.connections import Connections
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, ChannelId, TaskId


def output(target: int) -> OutputChannel:
    return OutputChannel(target, ChannelId(0, 0, target), TaskId("down", target), frozenset())


def subscribed(connection: int, receiver: int, target: int = 0) -> io.Subscribed:
    hello = io.Hello("job", ChannelId(0, 0, target), Attempt(1, receiver), Attempt(1, 2), 0, 0)
    return io.Subscribed(connection, hello)


@pytest.mark.parametrize("again", [1, 2], ids=["of the same receiver", "of its replacement"])
def test_a_later_subscription_waits_in_place_of_an_earlier_one(again: int) -> None:
    """Otherwise both would be served once the sender has its log: the first one, too, up to its window."""
    connections = Connections("job", 7, [], [output(0), output(1)])
    assert connections.admit(subscribed(10, receiver=1)) == (None, [])
    assert connections.admit(subscribed(11, receiver=1, target=1)) == (None, [])
    assert connections.admit(subscribed(12, receiver=again)) == (None, [io.Disconnect(10)])
    assert [waiting.connection for waiting in connections.serve()] == [11, 12]
