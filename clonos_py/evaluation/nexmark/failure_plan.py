"""Failure plans: files that list which tasks to kill at which time, for any query.

Each line is one order; text after a # is a comment:

    join[0]@3s      that task, 3 s after the job is deployed
    any@10s         a task drawn by the seed, the same each time
    3 any@20s       three different tasks at once
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.settings.kinds import KILLS

_ANY = re.compile(r"(?:(\d+) +)?any@(\S+)")


def read_plan(file: Path) -> list[str]:
    """The orders of a plan. Raises SettingError for a file that cannot be read or has no orders."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--failures {file} cannot be read: {error}") from None
    orders = [order for line in lines if (order := line.partition("#")[0].strip())]
    if not orders:
        raise SettingError(f"--failures {file} has no orders: write lines such as join[0]@3s or any@10s")
    return orders


def drawn(orders: Sequence[str], tasks: Sequence[TaskId], seed: int) -> list[str]:
    """The orders as kills in the syntax of the settings, with a random task for every ``any``. Raises SettingError."""
    dice = random.Random(seed)
    return [kill for order in orders for kill in _drawn(order, tasks, dice)]


def _drawn(order: str, tasks: Sequence[TaskId], dice: random.Random) -> Iterator[str]:
    match = _ANY.fullmatch(order)
    if match is None:
        yield from (str(kill) for kill in KILLS.parse([order]))
        return
    count = int(match[1] or 1)
    if not 1 <= count <= len(tasks):
        raise SettingError(f"failure {order!r}: the job has {len(tasks)} tasks, so that 1 to {len(tasks)} can fail")
    for task in dice.sample(sorted(tasks), count):
        yield from (str(kill) for kill in KILLS.parse([f"{task}@{match[2]}"]))
