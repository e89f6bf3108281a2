"""Reads the memory of the processes in which tasks run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clonos_py.runtime.ray.process_table import entries


def resident_bytes() -> Iterator[tuple[int, int]]:
    """Process id and anonymous resident memory of each task process."""
    for process, command in entries():
        with suppress(OSError, IndexError):  # the process has ended
            if b"ray::ProcessActor" in command:
                status = Path(f"/proc/{process.pid}/status").read_text()
                yield process.pid, int(status.split("RssAnon:")[1].split()[0]) << 10
