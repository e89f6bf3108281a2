"""What a process keeps to its end is not looked at by the garbage collector, and nothing else is left out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from clonos_py.runtime.garbage import kept


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def _cycles() -> int:
    return sum(type(value) is _Cycle for value in gc.get_objects())


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    assert gc.isenabled()


def test_collector_rests_in_the_block_and_goes_on_after_it() -> None:
    with kept():
        assert not gc.isenabled()
        with kept():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), kept():
        raise KeyError
    assert gc.isenabled()


def test_objects_of_the_block_are_skipped_and_later_garbage_is_found() -> None:
    with kept():
        held = _Cycle()
    assert _cycles() == 0  # gc.get_objects() leaves out what is frozen
    _Cycle()
    assert _cycles() == 1
    gc.collect()
    assert _cycles() == 0
    assert held.itself is held
