"""The watch of a process's memory."""

from __future__ import annotations

import mmap
import threading
from itertools import chain, repeat
from pathlib import Path

from clonos_py.model.errors import MemoryLimitError, Remedy
from clonos_py.runtime.memory_limit import MemoryWatch, private_bytes, until_next_look_s
from tests.waiting import WAIT_S_MAX


def test_what_a_process_holds_counts_and_a_mapped_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (64 << 20))
    before = private_bytes()
    held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # an allocator might have it left
    held.write(b"x" * len(held))
    assert private_bytes() - before > 48 << 20
    held.close()
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped.rfind(b"y") < 0, "every page was read"
        assert private_bytes() < before + (48 << 20)
    assert 0 < private_bytes() < before + (48 << 20)


def test_a_process_that_grows_over_its_limit_is_reported_once_with_what_it_holds() -> None:
    found: list[MemoryLimitError] = []
    looks, told = chain([90 << 20, 100 << 20], repeat(101 << 20)), threading.Event()

    def exceeded(problem: MemoryLimitError) -> None:
        found.append(problem)
        told.set()

    MemoryWatch(100 << 20, exceeded, lambda: next(looks))
    assert told.wait(WAIT_S_MAX)
    (problem,) = found
    assert problem.remedy is Remedy.RECOVER_TASK
    assert str(problem).startswith("its process holds 101MiB of memory and may hold 100MiB: give its operators more")
    assert next(looks) == 101 << 20


def test_a_process_far_from_its_limit_is_looked_at_less_often() -> None:
    limit = 8 << 30
    waits = [until_next_look_s(held, limit) for held in (0, 4 << 30, 6 << 30, limit - 1, limit)]
    assert waits == [1.0, 1.0, 0.5, 0.05, 0.05]


def test_a_stopped_watch_reports_nothing() -> None:
    looked = threading.Event()

    def held_bytes() -> int:
        looked.set()
        return 1

    watch = MemoryWatch(100, lambda problem: None, held_bytes)
    assert looked.wait(WAIT_S_MAX)
    watch.stop()
