"""Processor times on other nodes: which process is called, and how long a result is valid."""

from __future__ import annotations

from concurrent.futures import Future

from clonos_py.runtime.ray.remote_cpu import RemoteCpuTimes


class Neighbour:
    """Stands in for an actor's handle: records calls, whose results come later."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.answers: list[Future[int | None]] = []

    @property
    def cpu_us(self) -> Neighbour:
        return self

    def remote(self, pid: int) -> Neighbour:
        self.pids.append(pid)
        self.answers.append(Future())
        return self

    def future(self) -> Future[int | None]:
        return self.answers[-1]


def test_the_last_sender_on_the_node_is_called_and_its_result_is_used_once() -> None:
    times, earlier, last, other_node = RemoteCpuTimes(), Neighbour(), Neighbour(), Neighbour()
    times.received(1, "a", earlier)
    times.received(2, "a", last)
    times.received(3, "b", other_node)
    assert times.cpu_us(4, 4711, "a") is None
    last.answers[0].set_result(7_000)
    assert times.cpu_us(4, 4711, "a") == 7_000
    assert times.cpu_us(4, 4711, "a") is None, "the next request makes a new call"
    assert (earlier.pids, last.pids, other_node.pids) == ([], [4711, 4711], [])


def test_a_message_of_the_process_outdates_the_result() -> None:
    times, neighbour, silent = RemoteCpuTimes(), Neighbour(), Neighbour()
    times.received(1, "a", neighbour)
    times.cpu_us(2, 4711, "a")
    neighbour.answers[0].set_result(7_000)
    times.received(2, "a", silent)
    times.received(1, "a", neighbour)
    assert times.cpu_us(2, 4711, "a") is None


def test_a_process_is_not_called_about_itself_and_a_dead_neighbour_gives_no_result() -> None:
    times, alone, dying = RemoteCpuTimes(), Neighbour(), Neighbour()
    times.received(1, "a", alone)
    assert times.cpu_us(1, 4711, "a") is None
    assert alone.pids == []
    times.received(2, "a", dying)
    assert times.cpu_us(1, 4711, "a") is None
    dying.answers[0].set_exception(RuntimeError("it has died"))
    assert times.cpu_us(1, 4711, "a") is None
