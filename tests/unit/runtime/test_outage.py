"""Whether Ray runs: what counts as an outage, and what ends the run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from clonos_py.bench.ports import free_ports
from clonos_py.model.errors import ClusterLostError
from clonos_py.runtime.ray import outage
from clonos_py.runtime.ray.outage import Outage, RayService, Refusals, refuses

HEAD, RAYLET = RayService("Ray's head (GCS)", "10.0.0.1", 6379), RayService("the raylet", "10.0.0.2", 7000)
MESSAGE = "Ray's head (GCS) at 10.0.0.1:6379 is gone, and the job with it: checkpoint 7 is complete"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "_PAUSE_S", 0.001)
    monkeypatch.setattr(outage, "_GRACE_S", 0.05)


class Network:
    """Refuses connections to the addresses that are down."""

    def __init__(self) -> None:
        self.down: Sequence[RayService] = ()
        self.asked = 0

    def __call__(self, service: RayService) -> bool:
        self.asked += 1
        return service in self.down


@contextmanager
def looking(network: Network) -> Iterator[tuple[Outage, list[ClusterLostError]]]:
    """An outage's thread, and the error with which it ended the process."""
    ended: list[ClusterLostError] = []
    found = Outage([HEAD, RAYLET], lambda: "checkpoint 7 is complete", network, ended.append)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found, ended
    finally:
        found.stop()
        thread.join()


def test_three_refusals_in_a_row_count_as_an_outage() -> None:
    refusals = Refusals()
    assert [refusals.count(refused) for refused in (True, True, False, True, True, True)] == [False] * 5 + [True]


def test_a_port_with_a_listening_program_does_not_count_as_refusing() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        host, port = server.getsockname()
        assert not refuses(RayService("busy", host, port))
    assert refuses(RayService("gone", "127.0.0.1", free_ports(1)[0]))


def test_an_address_that_never_answers_does_not_count_as_refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(address: tuple[str, int], timeout: float) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    assert not refuses(HEAD)


def test_a_driver_that_checks_gets_one_error_with_address_and_checkpoint() -> None:
    network = Network()
    with looking(network) as (found, _):
        found.check()
        network.down = [HEAD]
        with pytest.raises(ClusterLostError) as lost:
            found.settle()
        assert str(lost.value) == MESSAGE
        with pytest.raises(ClusterLostError):
            found.check()


def test_a_driver_that_checks_continues_at_once_when_no_address_refuses() -> None:
    found = Outage([HEAD, RAYLET], lambda: "", Network())
    found.settle()


def test_both_addresses_are_named_when_both_refuse() -> None:
    network = Network()
    network.down = [HEAD, RAYLET]
    with looking(network) as (found, _), pytest.raises(ClusterLostError, match=r"6379 and the raylet at 10\.0\.0\.2"):
        found.settle()


def test_a_driver_that_does_not_check_in_time_is_ended() -> None:
    network = Network()
    network.down = [HEAD]
    with looking(network) as (found, ended):
        with pytest.raises(ClusterLostError):
            found.settle()
        threading.Event().wait(0.01)
        while not ended:
            threading.Event().wait(0.01)
    assert str(ended[0]) == MESSAGE


def test_a_finished_run_is_not_ended() -> None:
    network = Network()
    with looking(network) as (_, ended):
        pass
    asked, network.down = network.asked, [HEAD]
    threading.Event().wait(0.02)
    assert (network.asked, ended) == (asked, [])
