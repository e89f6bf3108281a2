"""The recovery line: the newest snapshots, one of each task, that fit together (CheckMate, III-B).

A snapshot has a *position* in each channel: a sender has sent the frames below its position, a receiver has taken those
below its own. Two snapshots do not fit together if the receiver has taken frames that the sender, continuing from its
snapshot, sends as if for the first time (orphan messages). Frames between the two positions do no harm if they are
stored; ``drained`` returns whether there are none.

The line is the greatest fixpoint. Begin with the newest snapshot of each task; while a receiver is ahead of a sender,
replace its snapshot by the one before. Every step is necessary, so the order does not matter, and no newer line exists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class LineChannel(Generic[T]):
    """A channel from output ``output`` of ``sender`` to input ``input`` of ``receiver``."""

    sender: T
    output: int
    receiver: T
    input: int


def line_channels(plan: PhysicalPlan) -> list[LineChannel[TaskId]]:
    """All channels of a plan."""
    inputs = {channel: index for channels in plan.inputs.values() for index, channel in enumerate(channels)}
    return [
        LineChannel(sender, output, plan.receiver(channel), inputs[channel])
        for sender, channels in plan.outputs.items()
        for output, channel in enumerate(channels)
    ]


class Positions(NamedTuple):
    """The positions of one snapshot: by input channel the first frame not taken, by output the first not sent."""

    inputs: Sequence[int]
    outputs: Sequence[int]


def at_the_start(plan: PhysicalPlan, task: TaskId) -> Positions:
    """The positions of a task that has done nothing yet."""
    return Positions([0] * len(plan.inputs[task]), [0] * len(plan.outputs[task]))


Histories = Mapping[T, Sequence[Positions]]
"""By task: its usable snapshots, oldest first. The current state of a task that continues counts as its newest."""


def recovery_line(histories: Histories[T], channels: Iterable[LineChannel[T]]) -> dict[T, int]:
    """By task: the index of its snapshot on the line. Raises ProtocolError if the oldest snapshots do not fit together,
    so that there is no line."""
    line = {task: len(snapshots) - 1 for task, snapshots in histories.items()}
    receives: dict[T, list[LineChannel[T]]] = {task: [] for task in histories}
    sends: dict[T, list[LineChannel[T]]] = {task: [] for task in histories}
    for channel in channels:
        receives[channel.receiver].append(channel)
        sends[channel.sender].append(channel)
    unchecked = deque(histories)
    while unchecked:
        task = unchecked.popleft()
        while any(_ahead(histories, line, channel) for channel in receives[task]):
            if line[task] == 0:
                raise ProtocolError(f"no snapshots fit together: {task} is ahead of its senders in its oldest one")
            line[task] -= 1
            unchecked.extend(channel.receiver for channel in sends[task])
    return line


def drained(histories: Histories[T], line: Mapping[T, int], channels: Iterable[LineChannel[T]]) -> bool:
    """Whether no frames lie between the positions, so that the snapshots on the line need no stored frames."""
    return all(_sent(histories, line, channel) == _taken(histories, line, channel) for channel in channels)


def _ahead(histories: Histories[T], line: Mapping[T, int], channel: LineChannel[T]) -> bool:
    return _taken(histories, line, channel) > _sent(histories, line, channel)


def _sent(histories: Histories[T], line: Mapping[T, int], channel: LineChannel[T]) -> int:
    return histories[channel.sender][line[channel.sender]].outputs[channel.output]


def _taken(histories: Histories[T], line: Mapping[T, int], channel: LineChannel[T]) -> int:
    return histories[channel.receiver][line[channel.receiver]].inputs[channel.input]
