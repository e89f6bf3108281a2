"""Pieces that are taken in parts have the rows of each part decoded alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Instant, Record
from clonos_py.connectors.kafka.client import Messages, TopicPartition
from clonos_py.connectors.kafka.columns import KafkaDeadLetter, RowLayout, RowMaker
from clonos_py.connectors.kafka.part_decoder import PartDecoder
from clonos_py.connectors.kafka.read_ahead import Taken
from clonos_py.model.errors import SourceError


class Word(Record):
    word: str | None
    offset: int


ATTRIBUTES = {"offset": "offset"}
COUNT = 60
LETTERS = KafkaDeadLetter.schema().names


def json(number: int) -> bytes:
    return b'{"word": "w%d"}' % number


def arrow(*numbers: int) -> bytes:
    rows = pa.record_batch({"word": pa.array([f"w{number}" for number in numbers], pa.string())})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_batch(rows)
    return out.getvalue().to_pybytes()


EMPTY = arrow()
GOOD = [json(number) for number in range(COUNT)]
CASES: dict[str, tuple[str, list[bytes | None]]] = {
    "good": ("json", [*GOOD]),
    "a tombstone": ("json", [*GOOD[:30], None, *GOOD[31:]]),
    "a malformed one": ("json", [*GOOD[:30], b"{", *GOOD[31:]]),
    "one row each": ("arrow", [arrow(number) for number in range(COUNT)]),
    "no row and two": ("arrow", [EMPTY if n == 3 else arrow(n, n) if n == 4 else arrow(n) for n in range(COUNT)]),
}


def parts(piece: Messages, sizes: random.Random) -> Sequence[Taken]:
    cuts = [0, *sorted(sizes.sample(range(1, COUNT), 8)), COUNT]
    return [Taken(piece.each(itemgetter(slice(*cut))), piece, cut[0]) for cut in itertools.pairwise(cuts)]


def outcome(made: Any, *arguments: Any) -> Any:
    try:
        return [None if rows is None else rows.to_pylist() for rows in made(*arguments)]
    except SourceError as problem:
        return str(problem)


@pytest.mark.parametrize("letters", [None, LETTERS], ids=["plain", "caught"])
@pytest.mark.parametrize("case", list(CASES))
def test_parts_of_a_piece_have_the_rows_of_each_part_decoded_alone(case: str, letters: Sequence[str] | None) -> None:
    format, values = CASES[case]
    layout = RowLayout(Word.schema(), format, ATTRIBUTES)
    piece = Messages(TopicPartition("t", 0), range(100, 100 + COUNT), (), [b"k"] * COUNT, values, ())
    decoder, maker = PartDecoder(RowMaker(layout, letters)), RowMaker(layout, letters)
    for taken in (*parts(piece, random.Random(1)), Taken(piece, piece, 0)):
        assert outcome(decoder.ports, taken) == outcome(maker.ports, taken.messages)


def test_a_piece_is_decoded_once_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = RowLayout(Word.schema(), "json", ATTRIBUTES)
    piece = Messages(TopicPartition("t", 0), range(COUNT), (), (), GOOD, ())
    maker = RowMaker(layout)
    decoder = PartDecoder(maker)
    decoded, calls = maker.row_for_each, list[Messages]()

    def noted(messages: Messages) -> pa.RecordBatch | None:
        calls.append(messages)
        return decoded(messages)

    monkeypatch.setattr(maker, "row_for_each", noted)
    for taken in parts(piece, random.Random(2)):
        decoder.ports(taken)
    assert calls == [piece]
    assert decoder._decoded == {}


@pytest.mark.parametrize("read", [["word", "offset"], ["word"], ["offset"], ["gone"]])
def test_which_messages_are_rows_does_not_depend_on_the_columns_that_are_read(read: list[str]) -> None:
    class Shown(Record):
        word: str | None
        offset: int
        gone: bool

    layout = RowLayout(Shown.schema(), "json", {"offset": "offset", "gone": "tombstone"})
    values = [json(0), None, json(2)]
    messages = Messages(TopicPartition("words", 0), range(3), [], [], values, [])
    rows = RowMaker(layout.only(read)).rows(messages)
    expected = {"word": ["w0", None, "w2"], "offset": [0, 1, 2], "gone": [False, True, False]}
    assert rows.to_pydict() == {name: expected[name] for name in read}
    assert RowMaker(layout).skipped(messages) == 0
    bare = RowLayout(Word.schema(), "json", ATTRIBUTES)
    assert RowMaker(bare).skipped(messages) == 1


class Keyed(Record):
    number: int | None
    word: str
    at: Instant


@pytest.mark.parametrize("tombstones", [False, True])
def test_a_message_whose_attributes_do_not_fit_is_malformed(tombstones: bool) -> None:
    """The same message whether messages without a value are rows or not."""
    layout = RowLayout(Keyed.schema(), "json", {"word": "key", "at": "timestamp"}, tombstones)
    good = b'{"number": 1}'
    keys = [b"a", None, None, b"\xff", b"e", b"f", b"g", None]
    values = [good, None, good, good, None, good, good, good]
    times = [1, 2, 3, 4, 5, 2**62, -1, 8]
    piece = Messages(TopicPartition("t", 0), range(10, 18), times, keys, values, [()] * 8)
    rows, letters = RowMaker(layout, ["offset", "value", "reason"]).ports(piece)
    assert rows is not None
    assert letters is not None
    nobody = "it has no key, but column 'word' is not declared '| None'"
    refused = {11: nobody} if tombstones else {}
    refused |= {12: nobody, 13: "its key is not UTF-8 text"}
    refused |= {15: f"its timestamp of {2**62} ms is too far in the future"}
    refused |= {16: "it has no timestamp, but column 'at' is not declared '| None'", 17: nobody}
    assert {row["offset"]: row["reason"] for row in letters.to_pylist()} == refused
    assert [row["value"] for row in letters.to_pylist()][:2] == ([b"", good] if tombstones else [good, good])
    expected = [(1, "a", 1_000), *([(None, "e", 5_000)] if tombstones else [])]
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected
    first = min(refused)
    with pytest.raises(
        SourceError, match=rf"Kafka message t\[0\] offset {first} is not json of this schema: it has no"
    ):
        RowMaker(layout).rows(piece)


def test_a_message_without_a_timestamp_has_null_there() -> None:
    schema = pa.schema([pa.field("at", pa.int64())])
    piece = Messages(TopicPartition("t", 0), range(2), [-1, 0], (), [b"{}", b"{}"], ())
    assert RowMaker(RowLayout(schema, "json", {"at": "timestamp"})).rows(piece).to_pydict() == {"at": [None, 0]}
