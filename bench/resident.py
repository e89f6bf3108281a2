"""The memory of the processes in which tasks run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clonos_py.runtime.ray.process_table import entries


def resident_bytes() -> Iterator[tuple[int, int]]:
    """By process: the memory that is its own."""
    for process, command in entries():
        with suppress(OSError, IndexError):  # it has ended meanwhile
            if b"ray::ProcessActor" in command:
                status = Path(f"/proc/{process.pid}/status").read_text()
                yield process.pid, int(status.split("RssAnon:")[1].split()[0]) << 10
