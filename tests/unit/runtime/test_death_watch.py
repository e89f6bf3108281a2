"""A process that dies on this machine is reported at once, and once; at a time without memory Ray says why it died."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from clonos_py.runtime.ray.death_watch import DeathWatch
from clonos_py.runtime.ray.node_memory import used_share
from clonos_py.runtime.ray.process_handle import ProcessHandle
from tests.waiting import WAIT_S_MAX

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes have no handles")

MEMINFO = "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\nHugePages_Total:  0\n"


@pytest.fixture
def died() -> SimpleQueue[int]:
    return SimpleQueue()


@pytest.fixture
def watch(died: SimpleQueue[int]) -> Iterator[DeathWatch]:
    made = DeathWatch(died.put, lambda: 0.1)
    yield made
    made.close()


def started() -> tuple[subprocess.Popen[bytes], ProcessHandle]:
    process = subprocess.Popen(["sleep", "600"])
    handle = ProcessHandle.of(process.pid, process.pid)
    assert handle is not None
    return process, handle


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_each_dead_process_is_reported_once(watch: DeathWatch, died: SimpleQueue[int]) -> None:
    first, second = started(), started()
    watch.add(1, first[1])
    watch.add(2, second[1])
    assert not first[1].is_ending()
    end(first[0])
    assert died.get(timeout=WAIT_S_MAX) == 1
    assert first[1].is_ending()
    end(second[0])
    assert died.get(timeout=WAIT_S_MAX) == 2
    assert died.empty()


def test_a_process_that_died_before_is_reported(watch: DeathWatch, died: SimpleQueue[int]) -> None:
    process, handle = started()
    end(process)
    watch.add(1, handle)
    assert died.get(timeout=WAIT_S_MAX) == 1


def test_a_process_that_is_not_watched_any_more_is_not_reported(watch: DeathWatch, died: SimpleQueue[int]) -> None:
    (left, left_handle), (other, other_handle) = started(), started()
    watch.add(1, left_handle)
    watch.remove(left_handle)
    left_handle.close()
    watch.add(2, other_handle)
    end(left)
    end(other)
    assert died.get(timeout=WAIT_S_MAX) == 2
    assert died.empty()


def test_a_death_while_memory_is_short_is_left_to_ray(died: SimpleQueue[int]) -> None:
    shares = [0.1, 0.95]
    watch = DeathWatch(died.put, lambda: shares.pop() if len(shares) > 1 else shares[0])
    process, handle = started()
    end(process)
    watch.add(1, handle)
    with pytest.raises(Empty):
        died.get(timeout=0.1)
    watch.close()


@pytest.mark.parametrize("problem", [OSError, ValueError, KeyError])
def test_a_machine_that_does_not_say_what_it_uses_has_memory(died: SimpleQueue[int], problem: type[Exception]) -> None:
    def unknown() -> float:
        raise problem

    watch = DeathWatch(died.put, unknown)
    process, handle = started()
    watch.add(1, handle)
    end(process)
    assert died.get(timeout=WAIT_S_MAX) == 1
    watch.close()


@pytest.mark.parametrize(("limit", "share"), [(None, 0.4), ("max", 0.4), ("1000", 0.7), ("100000", 0.4)])
def test_the_used_share_is_that_of_the_container_if_it_is_larger(
    tmp_path: Path, limit: str | None, share: float
) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("900\n")
        (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 200\n")
    assert used_share(tmp_path / "meminfo", tmp_path) == pytest.approx(share)


def test_this_machine_says_what_it_uses(tmp_path: Path) -> None:
    assert 0 < used_share() < 1
    assert used_share(tmp_path / "missing") == 0


WITH_AN_IDLE_THREAD = """
import threading
idle = threading.Thread(target=threading.Event().wait, daemon=True)
idle.start()
print(idle.native_id, flush=True)
threading.Event().wait()
"""


def test_a_process_ends_with_a_thread_that_lasts_as_long(watch: DeathWatch, died: SimpleQueue[int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", WITH_AN_IDLE_THREAD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    handle = ProcessHandle.of(process.pid, int(process.stdout.readline()))
    assert handle is not None
    watch.add(1, handle)
    assert not handle.is_ending()
    assert handle.kill()
    assert died.get(timeout=WAIT_S_MAX) == 1
    process.wait()
    assert not handle.kill()
    watch.remove(handle)
    handle.close()


def test_a_system_without_handles_of_threads_waits_for_the_process(
    watch: DeathWatch, died: SimpleQueue[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.pidfd_open

    def without_threads(pid: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EINVAL, "unknown flag")
        return opened(pid)

    monkeypatch.setattr(os, "pidfd_open", without_threads)
    process, handle = started()
    watch.add(1, handle)
    end(process)
    assert died.get(timeout=WAIT_S_MAX) == 1
    handle.close()
