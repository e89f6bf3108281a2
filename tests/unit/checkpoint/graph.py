"""The checkpoint graph and rollback propagation (CheckMate, III-B, algorithm 1; Wang and others, 1995).

The nodes are checkpoints, the initial ones among them. An edge leads from x to y if a message that was sent in the
interval that x begins was taken before y, for every such y, and from each checkpoint of a task to its next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clonos_py.checkpoint.line import LineChannel, Positions

Node = tuple[int, int]
"""(task, checkpoint)."""


class Example(NamedTuple):
    """A history, by the positions of its checkpoints."""

    histories: dict[int, list[Positions]]
    channels: list[LineChannel[int]]


class CheckpointGraph:
    """A graph with rollback propagation. Bugs are planted in subclasses."""

    def __init__(self, example: Example) -> None:
        self._histories = example.histories
        self._channels = [channel for channel in example.channels if self.joins(channel)]
        self._nodes = [(task, x) for task, checkpoints in self._histories.items() for x in range(len(checkpoints))]
        self._edges = {node: {*self.within(node), *self.between(node)} for node in self._nodes}

    def recovery_line(self) -> dict[int, int]:
        """Rollback propagation. Raises LookupError if there is no line."""
        root = {task: len(checkpoints) - 1 for task, checkpoints in self._histories.items()}
        while marked := self._reached(root.items()) & {*root.items()}:
            for task, _ in marked:
                root[task] -= 1
                if root[task] < 0:
                    raise LookupError(f"no checkpoint of {task} is left")
        return root

    def _reached(self, root: Iterable[Node]) -> set[Node]:
        """The checkpoints strictly reachable from those of the root set."""
        reached: set[Node] = set()
        unseen = [found for node in root for found in self._edges[node]]
        while unseen:
            node = unseen.pop()
            if node not in reached:
                reached.add(node)
                unseen += self._edges[node]
        return reached

    # ---- edges

    def joins(self, channel: LineChannel[int]) -> bool:
        """Whether messages of this channel make edges."""
        return True

    def within(self, node: Node) -> Iterator[Node]:
        task, x = node
        if x + 1 < len(self._histories[task]):
            yield task, x + 1

    def between(self, node: Node) -> Iterator[Node]:
        for channel in self._channels:
            if channel.sender == node[0]:
                yield from ((channel.receiver, y) for y in self.after(channel, node[1]))

    def after(self, channel: LineChannel[int], x: int) -> list[int]:
        """The receiver's checkpoints before which a message was taken that the sender sent between x and its next."""
        first, end = self.interval(channel, x)
        taken = [checkpoint.inputs[channel.input] for checkpoint in self._histories[channel.receiver]]
        return [y for y, position in enumerate(taken) if first < min(position, end)]

    def interval(self, channel: LineChannel[int], x: int) -> tuple[int, int]:
        """The messages that the sender sent between x and its next checkpoint."""
        sent = [checkpoint.outputs[channel.output] for checkpoint in self._histories[channel.sender]]
        return sent[x], sent[x + 1] if x + 1 < len(sent) else 1 << 62


# ---- without edges that the definition has and the lines do not need


class NoEdgesWithinATask(CheckpointGraph):
    def within(self, node: Node) -> Iterator[Node]:
        return iter(())


# ---- bugs of the reference implementation


class EdgesToTheNewestReceiverCheckpointOnly(CheckpointGraph):
    def after(self, channel: LineChannel[int], x: int) -> list[int]:
        newest = len(self._histories[channel.receiver]) - 1
        return [y for y in super().after(channel, x) if y == newest]


class NoEdgesFromInitialCheckpoints(CheckpointGraph):
    def between(self, node: Node) -> Iterator[Node]:
        return super().between(node) if node[1] else iter(())


class EdgesAtEqualPositions(CheckpointGraph):
    def after(self, channel: LineChannel[int], x: int) -> list[int]:
        first, end = self.interval(channel, x)
        taken = [checkpoint.inputs[channel.input] for checkpoint in self._histories[channel.receiver]]
        return [y for y, position in enumerate(taken) if first <= min(position, end)]


class NoEdgesWithinAWorker(CheckpointGraph):
    """Two workers, each with every other task."""

    def joins(self, channel: LineChannel[int]) -> bool:
        return channel.sender % 2 != channel.receiver % 2


BUGS = (
    EdgesToTheNewestReceiverCheckpointOnly,
    NoEdgesFromInitialCheckpoints,
    EdgesAtEqualPositions,
    NoEdgesWithinAWorker,
)
