"""Estimates how many checkpoints that tasks take alone are invalid at a failure, from their times alone (E13).

A checkpoint is *invalid* if it is ahead of the recovery line when all tasks go back to it (CheckMate, table III). If
every channel is always busy and frames take no time, the position of a checkpoint in each channel is its time. Then a
receiver's checkpoint fits those of its senders that are not earlier. So each level of tasks goes back further than the
level before it: to its newest checkpoint that is not later than any on the line there.

A measured share should agree with this one. Frames that are rare or slow leave fewer orphans, and a lower share.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from clonos_py.checkpoint.line import LineChannel, Positions, recovery_line

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class Levels:
    """Levels of ``parallelism`` tasks each, numbered level by level. ``shuffles``: for each level except the first,
    whether its tasks receive from all tasks of the level before, or from one each."""

    parallelism: int
    shuffles: Sequence[bool]

    @property
    def tasks(self) -> range:
        return range(self.parallelism * (1 + len(self.shuffles)))

    def channels(self) -> list[LineChannel[int]]:
        width = self.parallelism
        return [
            LineChannel(level * width + a, b if shuffled else 0, (level + 1) * width + b, a if shuffled else 0)
            for level, shuffled in enumerate(self.shuffles)
            for a in range(width)
            for b in (range(width) if shuffled else (a,))
        ]


def checkpoint_times(
    tasks: Sequence[int], interval_us: int, until_us: int, seed: int, jitter: float = 0.2
) -> dict[int, list[int]]:
    """By task: the times of its checkpoints before ``until_us``, in microseconds since the start of the job. The time
    between two checkpoints is the interval, longer or shorter by up to ``jitter`` of it."""
    draw = random.Random(seed)
    times: dict[int, list[int]] = {}
    for task in tasks:
        times[task] = []
        at = 0
        while (at := at + round(interval_us * draw.uniform(1 - jitter, 1 + jitter))) < until_us:
            times[task].append(at)
    return times


def ahead_of_line(times: Mapping[T, Sequence[int]], channels: Iterable[LineChannel[T]]) -> int:
    """How many of the checkpoints that these tasks took at these times are ahead of their recovery line. Channels from
    and to other tasks are ignored."""
    within = [channel for channel in channels if channel.sender in times and channel.receiver in times]
    width = 1 + max((max(channel.input, channel.output) for channel in within), default=0)
    histories = {task: [Positions([at] * width, [at] * width) for at in (0, *taken)] for task, taken in times.items()}
    line = recovery_line(histories, within)
    return sum(len(taken) - line[task] for task, taken in times.items())


def invalid_share(times: Mapping[int, Sequence[int]], levels: Levels) -> float:
    """The share of the checkpoints taken at these times that are ahead of the recovery line: 0 to 1. The initial
    checkpoints at time 0 are not counted."""
    taken = sum(map(len, times.values()))
    return ahead_of_line(times, levels.channels()) / taken if taken else 0.0
