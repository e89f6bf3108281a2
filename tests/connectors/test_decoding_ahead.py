"""The next batches are decoded while their predecessor is used, and nothing else is different."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from weakref import WeakSet

import pyarrow as pa
import pytest

from clonos_py.connectors import decoding_ahead
from clonos_py.connectors.decoding_ahead import DecodedAhead
from tests.waiting import attempts

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def no_other_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of other tests may still hold batches."""
    monkeypatch.setattr(decoding_ahead, "_ahead", WeakSet())


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number]})


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [found["n"][0].as_py() for found in batches]


@pytest.mark.parametrize("ahead", [True, False])
def test_batches_come_in_their_order_and_end(ahead: bool) -> None:
    decoded = DecodedAhead(map(batch, range(20)), ahead=ahead)
    assert numbers(decoded) == list(range(20))
    assert next(decoded, None) is None


def test_an_error_comes_behind_the_batches_before_it() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        yield batch(1)
        raise OSError("the disk is gone")

    decoded = DecodedAhead(failing(), ahead=True)
    assert [next(decoded)["n"][0].as_py() for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(decoded)


class Watched:
    """Batches without end that say which of them another thread has begun. The second waits until it may go on."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.second, self.may_go_on, self.is_decoding = threading.Event(), threading.Event(), False

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield batch(0)
        for number in range(1, 100):
            self.begun.append(number)
            self.is_decoding = True
            self.second.set()
            self.may_go_on.wait(PATIENCE_S)
            time.sleep(0.02)
            self.is_decoding = False
            yield batch(number)


def test_two_batches_are_decoded_while_their_predecessor_is_used() -> None:
    watched = Watched()
    decoded = DecodedAhead(watched.batches(), ahead=True)
    next(decoded)
    watched.may_go_on.set()
    for _ in attempts(lambda: watched.begun):
        if watched.begun == [1, 2] and not watched.is_decoding:
            break
    assert numbers(iter([next(decoded), next(decoded)])) == [1, 2]
    decoded.close()
    assert watched.begun in ([1, 2], [1, 2, 3], [1, 2, 3, 4])


def test_after_closing_the_other_thread_decodes_no_more() -> None:
    watched = Watched()
    decoded = DecodedAhead(watched.batches(), ahead=True)
    next(decoded)
    assert watched.second.wait(PATIENCE_S)
    watched.may_go_on.set()
    decoded.close()
    assert not watched.is_decoding


def test_few_batches_are_decoded_ahead_however_many_files_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_ahead, "_AHEAD_MAX", 3)
    asked: list[int] = []

    def counted(number: int) -> Iterator[pa.RecordBatch]:
        yield batch(number)
        asked.append(number)
        yield batch(number)

    files = [DecodedAhead(counted(number), ahead=True) for number in range(10)]
    for file in files:
        next(file)
    for file in files:
        file.close()
    assert set(asked) <= {0, 1, 2}
    assert numbers(iter([next(files[9])])) == [9]
