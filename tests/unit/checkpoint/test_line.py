"""The recovery line, against all combinations of snapshots and against the checkpoint graph (CheckMate, III-B)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest

from clonos_py.checkpoint.line import LineChannel, Positions, drained, recovery_line
from clonos_py.model.errors import ProtocolError

HISTORIES = 4_000


class Example(NamedTuple):
    histories: dict[int, list[Positions]]
    channels: list[LineChannel[int]]


def history(seed: int) -> Example:
    """Tasks that send, take and snapshot at random; some graphs have cycles."""
    draw = random.Random(seed)
    tasks = range(draw.randint(2, 4))
    pairs = [(a, b) for a in tasks for b in tasks if a != b and (a < b or draw.random() < 0.2)]
    pairs = [pair for pair in pairs if draw.random() < 0.8]
    outputs, inputs = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
    channels = []
    for sender, receiver in pairs:
        channels.append(LineChannel(sender, outputs[sender], receiver, inputs[receiver]))
        outputs[sender] += 1
        inputs[receiver] += 1
    sent = {task: [0] * outputs[task] for task in tasks}
    taken = {task: [0] * inputs[task] for task in tasks}
    histories = {task: [Positions(tuple(taken[task]), tuple(sent[task]))] for task in tasks}
    for _ in range(draw.randint(0, 40)):
        match draw.choice(("send", "take", "take", "snapshot")):
            case "send" if channels:
                channel = draw.choice(channels)
                sent[channel.sender][channel.output] += 1
            case "take" if channels:
                channel = draw.choice(channels)
                if taken[channel.receiver][channel.input] < sent[channel.sender][channel.output]:
                    taken[channel.receiver][channel.input] += 1
            case "snapshot":
                task = draw.choice(tasks)
                if len(histories[task]) < 5:
                    histories[task].append(Positions(tuple(taken[task]), tuple(sent[task])))
    return Example(histories, channels)


def consistent(example: Example, line: dict[int, int]) -> bool:
    at = {task: example.histories[task][index] for task, index in line.items()}
    return all(at[c.receiver].inputs[c.input] <= at[c.sender].outputs[c.output] for c in example.channels)


def consistent_lines(example: Example) -> Iterator[dict[int, int]]:
    for indexes in product(*(range(len(snapshots)) for snapshots in example.histories.values())):
        line = dict(zip(example.histories, indexes, strict=True))
        if consistent(example, line):
            yield line


def by_graph(example: Example) -> dict[int, int]:
    """Rollback propagation. The nodes are the snapshots. An edge leads from x to y if a message that was sent after x
    was taken before y, and from each snapshot of a task to its next. What is reached from behind a task's newest
    snapshot, where all that it did is lost, cannot be used."""
    histories = example.histories
    edges: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for task, snapshots in histories.items():
        for x in range(len(snapshots)):
            edges[task, x] = {(task, x + 1)} if x + 1 < len(snapshots) else set()
    for c in example.channels:
        for x, before in enumerate(histories[c.sender]):
            for y, after in enumerate(histories[c.receiver]):
                if after.inputs[c.input] > before.outputs[c.output]:
                    edges[c.sender, x].add((c.receiver, y))
    line = {task: len(snapshots) - 1 for task, snapshots in histories.items()}
    while True:
        reached = set()
        unseen = [node for task, index in line.items() for node in edges[task, index]]
        while unseen:
            node = unseen.pop()
            if node not in reached:
                reached.add(node)
                unseen += edges[node]
        marked = [task for task, index in line.items() if (task, index) in reached]
        if not marked:
            return line
        for task in marked:
            line[task] -= 1


def test_the_line_is_the_newest_of_all_that_are_consistent() -> None:
    behind = 0
    for seed in range(HISTORIES):
        example = history(seed)
        line = recovery_line(example.histories, example.channels)
        lines = list(consistent_lines(example))
        assert line in lines, seed
        assert all(other[task] <= index for other in lines for task, index in line.items()), seed
        behind += any(index < len(example.histories[task]) - 1 for task, index in line.items())
    assert behind > HISTORIES // 10, "there are examples in which newest snapshots do not fit"


def test_the_line_is_that_of_the_checkpoint_graph() -> None:
    for seed in range(HISTORIES):
        example = history(seed)
        assert recovery_line(example.histories, example.channels) == by_graph(example), seed


PIPE = [LineChannel("up", 0, "down", 0)]


def snapshots(up: list[int], down: list[int]) -> dict[str, list[Positions]]:
    """By position in the one channel."""
    return {"up": [Positions((), (sent,)) for sent in up], "down": [Positions((taken,), ()) for taken in down]}


def test_a_receiver_that_is_ahead_steps_back() -> None:
    assert recovery_line(snapshots([0, 4], [0, 3, 5, 7]), PIPE) == {"up": 1, "down": 1}


def test_a_sender_may_be_ahead_and_its_channel_is_then_not_drained() -> None:
    histories = snapshots([0, 9], [0, 3])
    line = recovery_line(histories, PIPE)
    assert line == {"up": 1, "down": 1}
    assert not drained(histories, line, PIPE)
    assert drained(histories, {"up": 0, "down": 0}, PIPE)


def test_one_step_back_forces_the_next() -> None:
    histories = {
        "a": [Positions((), (0,)), Positions((), (2,))],
        "b": [Positions((0,), (0,)), Positions((3,), (5,))],
        "c": [Positions((0,), ()), Positions((4,), ())],
    }
    channels = [LineChannel("a", 0, "b", 0), LineChannel("b", 0, "c", 0)]
    assert recovery_line(histories, channels) == {"a": 1, "b": 0, "c": 0}


def test_oldest_snapshots_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="no snapshots fit together: down is ahead"):
        recovery_line(snapshots([1], [2]), PIPE)
