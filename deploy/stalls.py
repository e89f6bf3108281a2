"""Runs a command while all of its processes stand still again and again, as on a machine that is too busy.

    python deploy/stalls.py make test

The processes are in a cgroup that is frozen for four seconds, every 3 to 20 seconds. Needs Linux with cgroup v2, and
the right to create a cgroup (root). The exit code is that of the command.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_MOUNTS = Path("/proc/mounts")
_STALL_S = 4.0
_BETWEEN_S = (3.0, 20.0)
_EMPTY_S_MAX = 10.0
_INTERRUPTED = 130


class StallsError(Exception):
    """No cgroup can be created. The message says why."""


@contextmanager
def frozen_at_will() -> Iterator[Path]:
    """A new cgroup. At the end all of its processes are killed. Raises StallsError."""
    mounted = [line.split()[1] for line in _MOUNTS.read_text().splitlines() if line.split()[2] == "cgroup2"]
    if not mounted:
        raise StallsError("there is no cgroup v2 on this machine")
    group = Path(mounted[0]) / f"stalls-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise StallsError(f"{group} cannot be created ({error.strerror}): run it as root") from error
    try:
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        for _ in range(int(_EMPTY_S_MAX / 0.1)):
            with suppress(OSError):  # processes are still ending
                group.rmdir()
                break
            time.sleep(0.1)


def run(command: Sequence[str], seed: int) -> int:
    """Runs the command in a cgroup that is frozen again and again; returns its exit code."""
    drawn = random.Random(seed)
    with frozen_at_will() as group:
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        process = subprocess.Popen(["sh", "-c", enter, "sh", *command])
        stalls = 0
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(drawn.uniform(*_BETWEEN_S))
                print(f"{stalls} stalls of {_STALL_S:g} s, seed {seed}", file=sys.stderr)
                return code
            (group / "cgroup.freeze").write_text("1")
            time.sleep(_STALL_S)
            (group / "cgroup.freeze").write_text("0")
            stalls += 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs a command whose processes all stand still again and again.")
    parser.add_argument("--seed", type=int, default=0, help="Draws when they stand still.")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.command:
        parser.error("a command is missing, such as make test")
    try:
        return run(given.command, given.seed)
    except StallsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
