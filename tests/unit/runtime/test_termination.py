"""SIGTERM while Ray sets a handler of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from clonos_py.runtime.ray.cluster import termination_kept


@pytest.fixture(autouse=True)
def the_handler_of_the_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def exits(number: int, frame: FrameType | None) -> None:
    """The handler that Ray sets."""
    sys.exit(number)


def test_the_handler_of_the_process_is_in_place_after_ray_set_its_own() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with termination_kept():
        signal.signal(signal.SIGTERM, exits)
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def test_a_termination_inside_is_an_interrupt() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def connect() -> None:
        signal.signal(signal.SIGTERM, exits)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt), termination_kept():
        connect()
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def test_another_exit_passes() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with pytest.raises(SystemExit, match="3"), termination_kept():
        sys.exit(3)


def test_a_process_without_a_handler_keeps_that_of_ray() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with termination_kept():
        signal.signal(signal.SIGTERM, exits)
    assert signal.getsignal(signal.SIGTERM) is exits
