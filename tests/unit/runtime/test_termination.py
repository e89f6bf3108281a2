"""What a signal raises, and SIGTERM while Ray sets a handler of its own."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from clonos_py.model.errors import Interrupted, Terminated
from clonos_py.runtime.interrupts import end_in_order, held_back, interrupts, on_termination
from clonos_py.runtime.ray.cluster import termination_kept


@pytest.fixture(autouse=True)
def the_handler_of_the_tests() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Terminated)])
def test_a_run_is_told_which_signal_stops_it(number: signal.Signals, raised: type[Interrupted]) -> None:
    """Also where a function has caught the exception."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_in_order()
    with interrupts() as found:
        with pytest.raises(raised) as first:
            os.kill(os.getpid(), number)
        with pytest.raises(raised) as again:
            found.check()
    with pytest.raises(raised) as late, held_back():
        os.kill(os.getpid(), number)
    assert {type(first.value), type(again.value), type(late.value)} == {raised}
    assert signal.getsignal(signal.SIGTERM) is on_termination


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Terminated)])
def test_a_signal_that_does_not_interrupt_a_call_is_sent_again(
    number: signal.Signals, raised: type[Interrupted]
) -> None:
    """The system gives it to another thread; the main one goes on sleeping."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_in_order()

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), number)

    other = threading.Thread(target=take)
    with interrupts():
        threading.Timer(0.05, other.start).start()
        with pytest.raises(raised):
            time.sleep(600)
    other.join()
    assert signal.set_wakeup_fd(-1) == -1
    assert "signals" not in [thread.name for thread in threading.enumerate()]


def test_the_pipe_of_an_event_loop_stays_in_place() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.fileno())
    with reading, writing:
        with interrupts(), pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.set_wakeup_fd(-1) == writing.fileno()
        assert reading.recv(9) == bytes([signal.SIGINT])


def test_a_handler_of_a_script_stays_in_place() -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        """Another one."""

    signal.signal(signal.SIGTERM, handler)
    with interrupts(), held_back():
        assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.getsignal(signal.SIGTERM) is handler


def exits(number: int, frame: FrameType | None) -> None:
    """The handler that Ray sets."""
    sys.exit(number)


def test_the_handler_of_the_process_is_in_place_after_ray_set_its_own() -> None:
    signal.signal(signal.SIGTERM, on_termination)
    with termination_kept():
        signal.signal(signal.SIGTERM, exits)
    assert signal.getsignal(signal.SIGTERM) is on_termination


def test_a_termination_inside_is_an_interrupt() -> None:
    signal.signal(signal.SIGTERM, on_termination)

    def connect() -> None:
        signal.signal(signal.SIGTERM, exits)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated), termination_kept():
        connect()
    assert signal.getsignal(signal.SIGTERM) is on_termination


def test_another_exit_passes() -> None:
    signal.signal(signal.SIGTERM, on_termination)
    with pytest.raises(SystemExit, match="3"), termination_kept():
        sys.exit(3)


def test_a_process_without_a_handler_keeps_that_of_ray() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with termination_kept():
        signal.signal(signal.SIGTERM, exits)
    assert signal.getsignal(signal.SIGTERM) is exits
