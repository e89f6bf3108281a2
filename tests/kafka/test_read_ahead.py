"""The waiting messages of a partition, and in which pieces they are taken."""

from __future__ import annotations

import random

from clonos_py.connectors.kafka.client import Messages, TopicPartition
from clonos_py.connectors.kafka.read_ahead import _BUFFERED_MESSAGES, _SMALL_MESSAGES, Taken, _Buffer

PARTITION = TopicPartition("t", 0)


def fetched(start: int, count: int) -> Messages:
    offsets = list(range(start, start + count))
    return Messages(PARTITION, offsets, (), [b"k"] * count, [b"%d" % offset for offset in offsets], ())


def offsets(taken: Taken | None) -> list[int]:
    assert taken is not None
    assert list(taken.messages.values) == [b"%d" % offset for offset in taken.messages.offsets]
    assert taken.piece.offsets[taken.start] == taken.messages.offsets[0]
    return list(taken.messages.offsets)


def test_small_waiting_pieces_are_taken_together() -> None:
    buffer = _Buffer(0, None)
    for number in range(30):
        buffer.put(fetched(50 * number, 50))
    assert offsets(buffer.take()) == list(range(_SMALL_MESSAGES))
    assert offsets(buffer.take()) == list(range(_SMALL_MESSAGES, 1_500))
    assert buffer.take() is None


def test_a_piece_that_is_partly_taken_is_not_merged() -> None:
    buffer = _Buffer(0, None)
    buffer.put(fetched(0, 10))
    first = buffer.take(4)
    buffer.put(fetched(10, 10))
    second = buffer.take()
    assert first is not None
    assert second is not None
    assert (offsets(first), offsets(second)) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    assert first.piece is second.piece
    assert second.ends_piece
    assert offsets(buffer.take(below=12)) == [10, 11]
    assert buffer.take(below=12) is None


def test_each_message_comes_once_in_order_for_any_sizes_of_fetches_and_takes() -> None:
    chance = random.Random(1)
    buffer, put, found = _Buffer(0, 5_000), 0, list[int]()
    while len(found) < 5_000:
        if put < 5_200 and chance.random() < 0.6:
            count = chance.choice((1, 40, 900, 1_500))
            buffer.put(fetched(put, count))
            put += count
        most, below = chance.choice(((None, None), (7, None), (None, len(found) + 30)))
        taken = buffer.take(most, below)
        found += offsets(taken) if taken else []
    assert found == list(range(5_000))
    assert (buffer.fill, buffer.ended, buffer.waiting) == (0, True, False)


def test_the_buffer_is_full_by_number_of_messages() -> None:
    buffer = _Buffer(0, None)
    buffer.put(fetched(0, _BUFFERED_MESSAGES))
    assert buffer.fill == 1
