"""Events that a driver adds to those of the runs that it drives."""

from __future__ import annotations

import threading

from clonos_py.model.coordinator_events import Deployed
from clonos_py.observe.events import Event, RescaleFailed
from clonos_py.observe.status import news_text
from clonos_py.runtime.ray.run_events import RunEvents


class Heard:
    """A listener that fails if two threads call it at once."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._entered = threading.Semaphore(1)

    def __call__(self, at_us: int, event: Event) -> None:
        assert at_us >= 0
        assert self._entered.acquire(blocking=False), "two threads at once"
        self.events.append(event)
        self._entered.release()


def test_an_event_between_two_runs_goes_to_the_next_one() -> None:
    events, first, second = RunEvents(), Heard(), Heard()
    with events.of_run(first) as listen:
        listen(5, Deployed(1, 0))
        events.add(RescaleFailed("no room"))
    events.add(RescaleFailed("storage is full"))
    with events.of_run(second) as listen:
        listen(7, Deployed(2, 0))
    assert first.events == [Deployed(1, 0), RescaleFailed("no room")]
    assert second.events == [RescaleFailed("storage is full"), Deployed(2, 0)]


def test_a_listener_is_called_by_one_thread_at_a_time() -> None:
    events, heard = RunEvents(), Heard()
    entered, told = threading.Event(), threading.Event()

    def slow(at_us: int, event: Event) -> None:
        heard(at_us, event)
        if not entered.is_set():
            entered.set()
            told.wait(0.05)  # the other thread calls meanwhile, and must wait
            heard.events.append(Deployed(0, 0))

    def add() -> None:
        entered.wait()
        events.add(RescaleFailed("no room"))
        told.set()

    with events.of_run(slow) as listen:
        other = threading.Thread(target=add)
        other.start()
        listen(0, Deployed(1, 0))
        other.join()
    assert heard.events == [Deployed(1, 0), Deployed(0, 0), RescaleFailed("no room")]


def test_a_failed_change_of_parallelism_is_news() -> None:
    assert news_text(0, RescaleFailed("no room")) == "the parallelism is not changed: no room"
