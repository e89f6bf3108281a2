"""How much of the memory of this machine, or of its container, is used."""

from __future__ import annotations

from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")
"""The files of a container's limits (cgroup v2)."""


def used_share(machine: Path = _MACHINE, container: Path = _CONTAINER) -> float:
    """The share of memory that cannot be given to processes, from 0 to 1: that of the container if it is larger. 0
    where the system does not tell. Raises OSError, ValueError or LookupError if a file is
    not as expected."""
    if not machine.exists():
        return 0.0
    kib = _numbers(machine)
    used = 1 - kib["MemAvailable"] / kib["MemTotal"]
    limit = container / "memory.max"
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return used
    files = _numbers(container / "memory.stat")["inactive_file"]
    return max(used, (int((container / "memory.current").read_text()) - files) / int(text))


def _numbers(file: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number in each line."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {name.rstrip(":"): int(number) for name, number, *_ in lines}
