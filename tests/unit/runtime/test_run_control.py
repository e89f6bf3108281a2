"""A run of this machine is found by its name and stopped by another process, with any runtime."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos_py import Job
from clonos_py.bench.witnesses import PacedNumbers
from clonos_py.cli.main import invoke
from clonos_py.connectors import FileSink
from clonos_py.model.errors import ClusterError
from clonos_py.runtime import run_control
from clonos_py.runtime.run_control import Ended, controlled, local_runs
from clonos_py.runtime.stop_switch import StopSwitch
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A path of a socket is short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        folder = Path(outer, "runs")
        monkeypatch.setattr(run_control, "_folder", lambda: folder)
        yield folder


def test_a_local_run_is_stopped_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job("endless", checkpoint_interval="1h")
    job.source(PacedNumbers(10**9, 500)).named("numbers").sink(FileSink(str(tmp_path / "out"))).named("out")
    handle = job.start(runtime="local", checkpoints=str(tmp_path / "checkpoints"))
    wait_until(lambda: handle.counters.get("out.rows_out", 0) > 50)
    assert invoke(["stop", "endless"]) == 0
    assert handle.wait(60)
    assert handle.stop()
    first, last = capsys.readouterr().out.splitlines()
    assert first == "stopping 'endless': it takes a last checkpoint and commits it"
    assert last.startswith("stopped after ")
    assert list((tmp_path / "out").glob("*.jsonl"))
    assert local_runs() == []


@pytest.mark.parametrize("ended", [Ended(stopped=True), Ended(), Ended(error="a function failed")])
def test_who_asks_gets_how_the_run_ends(ended: Ended) -> None:
    stop = StopSwitch()
    returned: list[Ended | None] = []
    with controlled("job", None, stop) as control:
        (run,) = local_runs()
        asking = threading.Thread(target=lambda: returned.append(run.stop(60)))
        asking.start()
        wait_until(lambda: stop.requested)
        control.ended = ended
    asking.join()
    assert returned == [ended]


def test_a_run_that_does_not_end_in_time_goes_on_to_stop() -> None:
    stop = StopSwitch()
    with controlled("job", None, stop):
        (run,) = local_runs()
        with pytest.raises(ClusterError, match=r"^the job 'job' has not ended within 0\.1 s: it goes on to stop"):
            run.stop(0.1)
        wait_until(lambda: stop.requested)
    assert run.stop(1) is None


def test_who_is_slow_to_ask_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends the connection of a process that has stalled. That is no end of the run."""
    refused = iter((False, False))
    asks = run_control._asks
    monkeypatch.setattr(run_control, "_asks", lambda connection: next(refused, True) and asks(connection))
    stop = StopSwitch()
    returned: list[Ended | None] = []
    with controlled("job", None, stop) as control:
        (run,) = local_runs()
        asking = threading.Thread(target=lambda: returned.append(run.stop(60)))
        asking.start()
        wait_until(lambda: stop.requested)
        control.ended = Ended(stopped=True)
    asking.join()
    assert returned == [Ended(stopped=True)]


def test_who_is_never_heard_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_control, "_asks", lambda connection: False)
    with controlled("job", None, StopSwitch()):
        (run,) = local_runs()
        with pytest.raises(ClusterError, match=r"has not ended within 0\.3 s"):
            run.stop(0.3)


def test_a_run_that_many_ask_at_once_is_not_taken_for_dead() -> None:
    with controlled("job", None, StopSwitch()):
        (run,) = local_runs()
        with contextlib.ExitStack() as open_ones:
            for _ in range(3 * run_control._WAITING_MAX):
                connection = open_ones.enter_context(socket.socket(socket.AF_UNIX))
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.connect(str(run.path))
            assert [found.path for found in local_runs()] == [run.path]


def test_a_run_is_found_by_the_address_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_control, "cluster_addresses", lambda pid: {"10.0.0.1:6379"})
    with controlled("own", None, StopSwitch()), controlled("there", "10.0.0.2:6379", StopSwitch()):
        own, there = local_runs()
        assert [own.is_at(address) for address in (None, "10.0.0.1:6379", "10.0.0.2:6379")] == [True, True, False]
        assert there.is_at(None, "clonos")
        assert not there.is_at(None, "team-a")
        assert [there.is_at(address) for address in (None, "10.0.0.1:6379", "10.0.0.2:6379")] == [True, False, True]


def test_anything_but_a_request_is_closed() -> None:
    stop = StopSwitch()
    with controlled("job", None, stop):
        (run,) = local_runs()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(run.path))
            connection.sendall(b"hello")
            assert connection.recv(1) == b""
    assert not stop.requested


def test_what_a_killed_process_leaves_is_removed(folder: Path) -> None:
    with controlled("job", None, StopSwitch()):
        (run,) = local_runs()
        content = run.path.with_suffix(".json").read_bytes()
    folder.mkdir(0o700)
    left = folder / "1-0000.sock"
    left.with_suffix(".json").write_bytes(content)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(left))
    assert local_runs() == []
    assert list(folder.iterdir()) == []


def test_the_last_run_leaves_no_folder(folder: Path) -> None:
    with controlled("one", None, StopSwitch()):
        with controlled("other", None, StopSwitch()):
            assert [run.job for run in local_runs()] == ["one", "other"]
        assert [run.job for run in local_runs()] == ["one"]
    assert not folder.exists()


def test_a_run_may_begin_while_the_last_one_removes_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, removed = run_control._is_private, list[Path]()

    def meanwhile(path: Path) -> bool:
        found = private(path)
        if not removed:
            removed.append(path)
            path.rmdir()
        return found

    monkeypatch.setattr(run_control, "_is_private", meanwhile)
    with controlled("one", None, StopSwitch()):
        assert [run.job for run in local_runs()] == ["one"]
    assert removed


def test_a_folder_that_others_may_enter_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    with controlled("job", None, StopSwitch()):
        assert list(folder.iterdir()) == []
        assert local_runs() == []


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("clonos_py.runtime.ray.cluster.cluster_addresses", set)
    with controlled("hot", None, StopSwitch()), controlled("hot", None, StopSwitch()):
        assert invoke(["stop", "cold"]) == 1
        assert capsys.readouterr().err == (
            "error: no job named 'cold' runs here; running: 'hot', 'hot'; no Ray runs on this machine; "
            "name the cluster with --address\n"
        )
        assert invoke(["stop", "hot"]) == 1
        assert capsys.readouterr().err.startswith(
            "error: several runs here have a job named 'hot': send SIGTERM to one"
        )
