"""The memory of the processes in which tasks run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def resident_bytes() -> Iterator[tuple[int, int]]:
    """By process: the memory that is its own."""
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and b"ray::ProcessActor" in (folder / "cmdline").read_bytes():
                status = (folder / "status").read_text()
                yield int(folder.name), int(status.split("RssAnon:")[1].split()[0]) << 10
        except (OSError, IndexError):
            continue  # it has ended meanwhile
