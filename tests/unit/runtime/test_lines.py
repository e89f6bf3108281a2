"""The restarts and commits that the simulator expects: the newest fitting snapshots against all choices, by example."""

from __future__ import annotations

from itertools import product

import pytest

from clonos_py.model.ids import TaskId
from clonos_py.runtime.sim.lines import ChannelEnds, Passed, newest_that_fit
from clonos_py.runtime.sim.violation import Violation
from tests.checkpoint_histories import drawn_history

HISTORIES = 400
CHOICES_MAX = 3_000
A, B = TaskId("a", 0), TaskId("b", 0)
CHANNEL = ChannelEnds(A, 0, B, 0)


def best_of_all(snapshots: dict[TaskId, dict[int, Passed]], channels: list[ChannelEnds]) -> dict[TaskId, int]:
    """Tries every choice. Of those that fit, the one that has the newest snapshot of every task."""
    tasks = list(snapshots)
    fitting = []
    for numbers in product(*snapshots.values()):
        at = dict(zip(tasks, numbers, strict=True))
        passed = {task: snapshots[task][number] for task, number in at.items()}
        if all(passed[way.receiver].taken[way.input] <= passed[way.sender].sent[way.output] for way in channels):
            fitting.append(at)
    best = {task: max(at[task] for at in fitting) for task in tasks}
    assert best in fitting
    return best


def test_the_newest_fitting_snapshots_are_the_best_of_all_choices() -> None:
    compared = gone_back = 0
    for seed in range(HISTORIES):
        history = drawn_history(seed, forces=False, tasks_max=4, steps=40)
        names = [TaskId("task", number) for number in history.tasks]
        channels = [ChannelEnds(names[c.sender], c.output, names[c.receiver], c.input) for c in history.channels()]
        snapshots = {
            # the present state always fits
            names[task]: {10 * number: Passed(p.inputs, p.outputs) for number, p in enumerate(positions[:-1])}
            for task, positions in history.histories().items()
        }
        choices = 1
        for found in snapshots.values():
            choices *= len(found)
        if choices <= CHOICES_MAX:
            newest = newest_that_fit(snapshots, channels)
            assert newest == best_of_all(snapshots, channels), f"seed {seed}"
            compared += 1
            gone_back += any(newest[task] < max(found) for task, found in snapshots.items())
    assert gone_back > 50
    assert compared > 100


def test_a_receiver_goes_back_before_a_frame_that_its_sender_will_send_again() -> None:
    snapshots = {A: {0: Passed([], [0])}, B: {0: Passed([0], []), 4: Passed([1], [])}}
    assert newest_that_fit(snapshots, [CHANNEL]) == {A: 0, B: 0}


def test_snapshots_that_do_not_fit_are_a_violation() -> None:
    snapshots = {A: {0: Passed([], [0])}, B: {4: Passed([1], [])}}
    with pytest.raises(Violation, match="no snapshot of b"):
        newest_that_fit(snapshots, [CHANNEL])
