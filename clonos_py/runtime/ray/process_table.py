"""The process table of this machine: parents and processor times. Only on Linux; elsewhere it is empty."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROCESSES = Path("/proc")
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12
"""Fields of /proc/PID/stat after the name of the command."""


_GCS_ADDRESS = re.compile(rb"\0--gcs-address=([^\0]+)")
"""An argument of a raylet and of its workers."""


class ProcessEntry(NamedTuple):
    """One process. ``cpu_us``: the processor time of all its threads, in user and system mode."""

    pid: int
    parent: int
    cpu_us: int


def entry(pid: int) -> ProcessEntry | None:
    """The entry of a process; None if there is no such process."""
    with suppress(OSError, IndexError, ValueError):
        fields = (_PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        return ProcessEntry(pid, int(fields[_PARENT]), ticks * 1_000_000 // os.sysconf("SC_CLK_TCK"))
    return None


class Used(NamedTuple):
    """What a process uses: its processor time so far, and its memory with the libraries that it shares."""

    cpu_us: int
    resident_bytes: int


def used_here() -> Used:
    """What this process uses. The memory is 0 where there is no ``/proc``."""
    resident = 0
    with suppress(OSError, IndexError, ValueError):
        pages = int((_PROCESSES / "self" / "statm").read_text().split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
    return Used(time.process_time_ns() // 1_000, resident)


def cpu_us(pid: int) -> int | None:
    """The processor time of a process; None if there is no such process."""
    found = entry(pid)
    return found.cpu_us if found is not None else None


def entries() -> Iterator[tuple[ProcessEntry, bytes]]:
    """All processes, each with its command line."""
    if not _PROCESSES.is_dir():
        return
    for folder in _PROCESSES.iterdir():
        if folder.name.isdigit() and (found := entry(int(folder.name))) is not None:
            with suppress(OSError):
                yield found, (folder / "cmdline").read_bytes()


def cluster_addresses(ancestor: int | None = None) -> set[str]:
    """The addresses of the Ray clusters that run here; with ``ancestor``, only of those that this process has
    started."""
    started = None if ancestor is None else {pid for pid, _ in descendants(ancestor)}
    return {
        match[1].decode()
        for found, command in entries()
        if (started is None or found.pid in started) and (match := _GCS_ADDRESS.search(command))
    }


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """All descendants of a process, as (process id, program)."""
    children: dict[int, list[tuple[int, str]]] = {}
    for process, command in entries():
        children.setdefault(process.parent, []).append((process.pid, command.split(b"\0")[0].decode(errors="replace")))
    waiting = children.get(pid, [])
    while waiting:
        found = waiting.pop()
        waiting += children.get(found[0], [])
        yield found
