"""What a process keeps to its end is not looked at by the garbage collector, and nothing else is left out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from clonos_py.runtime import garbage
from clonos_py.runtime.garbage import kept


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def _cycles() -> int:
    return sum(type(value) is _Cycle for value in gc.get_objects())


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a process that starts."""
    monkeypatch.setattr(garbage, "_PROCESS", type(garbage._PROCESS)())
    gc.unfreeze()
    yield
    assert gc.isenabled()
    gc.collect()
    gc.freeze()


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


def test_what_is_made_for_a_job_after_the_first_is_garbage_later() -> None:
    with kept(last=True):
        pass
    held = _Cycle()
    with kept(last=True):
        made = _Cycle()
    assert _cycles() == 2
    del held, made
    gc.collect()
    assert _cycles() == 0


def test_all_blocks_before_the_last_one_of_the_start_are_kept() -> None:
    with kept():
        first = _Cycle()
    with kept(last=True):
        second = _Cycle()
    assert _cycles() == 0
    assert (first.itself, second.itself) == (first, second)
