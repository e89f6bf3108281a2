"""The recovery line: against all sets of checkpoints, against rollback propagation on the checkpoint graph (CheckMate,
III-B), and with the bugs of the reference implementation planted in that graph."""

from __future__ import annotations

import random

import numpy as np
import pytest

from clonos_py.checkpoint.line import LineChannel, Positions, drained, recovery_line
from clonos_py.model.errors import ProtocolError
from tests.checkpoint_histories import History, Wire
from tests.unit.checkpoint.graph import (
    BUGS,
    CheckpointGraph,
    EdgesToTheNewestReceiverCheckpointOnly,
    Example,
    NoEdgesFromInitialCheckpoints,
    NoEdgesWithinATask,
)

HISTORIES = 2_500
TASKS_MAX = CHECKPOINTS_MAX = 6


def drawn(seed: int) -> Example:
    """Tasks that send, take and checkpoint at random; half of the graphs may have cycles, and channels of a task to
    itself."""
    draw = random.Random(seed)
    tasks = range(draw.randint(2, TASKS_MAX))
    backwards = draw.choice((0, 0.3))
    pairs = [(a, b) for a in tasks for b in tasks if a < b or draw.random() < backwards]
    pairs = [pair for pair in pairs for _ in range(draw.choice((0, 1, 1, 1, 2)))]
    outputs, inputs = dict.fromkeys(tasks, 0), dict.fromkeys(tasks, 0)
    channels = []
    for sender, receiver in pairs:
        channels.append(LineChannel(sender, outputs[sender], receiver, inputs[receiver]))
        outputs[sender] += 1
        inputs[receiver] += 1
    sent = {task: [0] * outputs[task] for task in tasks}
    taken = {task: [0] * inputs[task] for task in tasks}
    histories = {task: [Positions(tuple(taken[task]), tuple(sent[task]))] for task in tasks}
    for _ in range(draw.randint(0, 20 * len(tasks))):
        action = draw.random()
        if action < 0.3 and channels:
            channel = draw.choice(channels)
            sent[channel.sender][channel.output] += 1
        elif action < 0.75 and channels:
            channel = draw.choice(channels)
            if taken[channel.receiver][channel.input] < sent[channel.sender][channel.output]:
                taken[channel.receiver][channel.input] += 1
        elif action >= 0.75:
            task = draw.choice(tasks)
            if len(histories[task]) < CHECKPOINTS_MAX:
                histories[task].append(Positions(tuple(taken[task]), tuple(sent[task])))
    return Example(histories, channels)


def newest_of_all_consistent(example: Example) -> dict[int, int]:
    """Tries all sets of checkpoints, one of each task: a table with a dimension for each, true where a set is
    consistent. Takes of each task the newest checkpoint in any consistent set; together they are consistent, too."""
    sizes = [len(checkpoints) for checkpoints in example.histories.values()]
    consistent = np.ones(sizes, bool)
    for channel in example.channels:
        sent = [checkpoint.outputs[channel.output] for checkpoint in example.histories[channel.sender]]
        taken = [checkpoint.inputs[channel.input] for checkpoint in example.histories[channel.receiver]]
        fits = np.subtract.outer(sent, taken) >= 0
        if channel.sender > channel.receiver:
            fits = fits.T
        if channel.sender == channel.receiver:
            fits = fits.diagonal()
        places = (channel.sender, channel.receiver)
        consistent &= fits.reshape([size if task in places else 1 for task, size in enumerate(sizes)])
    line = {task: int(found.max()) for task, found in enumerate(np.nonzero(consistent))}
    assert consistent[tuple(line.values())]
    return line


def test_fixpoint_checkpoint_graph_and_brute_force_give_the_same_line() -> None:
    behind = initial = 0
    for seed in range(HISTORIES):
        example = drawn(seed)
        line = recovery_line(*example)
        assert line == newest_of_all_consistent(example), seed
        assert line == CheckpointGraph(example).recovery_line(), seed
        behind += any(index < len(example.histories[task]) - 1 for task, index in line.items())
        initial += not any(line.values())
    assert behind > HISTORIES // 4, "in some examples the newest checkpoints do not fit together"
    assert initial > HISTORIES // 50, "in some examples the line is at the initial checkpoints"


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_planted_in_the_graph_changes_some_line(bug: type[CheckpointGraph]) -> None:
    assert any(line_or_none(bug, example) != newest_of_all_consistent(example) for example in map(drawn, range(200)))


def test_edges_within_a_task_change_no_line() -> None:
    """Events of a task after a checkpoint that was given up stay reachable: each is reached from a marked checkpoint or
    from the root set. So the lines do not show whether a graph has these edges."""
    for example in map(drawn, range(500)):
        assert NoEdgesWithinATask(example).recovery_line() == recovery_line(*example)


def line_or_none(graph: type[CheckpointGraph], example: Example) -> dict[int, int] | None:
    try:
        return graph(example).recovery_line()
    except LookupError:
        return None


PIPE = [LineChannel("up", 0, "down", 0)]


def snapshots(up: list[int], down: list[int]) -> dict[str, list[Positions]]:
    """By position in the only channel."""
    return {"up": [Positions((), (sent,)) for sent in up], "down": [Positions((taken,), ()) for taken in down]}


def test_a_receiver_ahead_of_its_sender_goes_back() -> None:
    assert recovery_line(snapshots([0, 4], [0, 3, 5, 7]), PIPE) == {"up": 1, "down": 1}


def test_a_sender_ahead_of_its_receiver_leaves_its_channel_undrained() -> None:
    histories = snapshots([0, 9], [0, 3])
    line = recovery_line(histories, PIPE)
    assert line == {"up": 1, "down": 1}
    assert not drained(histories, line, PIPE)
    assert drained(histories, {"up": 0, "down": 0}, PIPE)


def test_one_task_going_back_forces_the_next() -> None:
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


def test_receiver_checkpoints_ahead_of_the_sender_are_not_on_the_line() -> None:
    """The sender had sent 10. A graph with edges only to the newest checkpoint of the receiver would take the one at
    12."""
    example = Example({0: [Positions((), (0,)), Positions((), (10,))], 1: at_inputs(0, 5, 12, 15)}, ONE)
    assert recovery_line(*example) == CheckpointGraph(example).recovery_line() == {0: 1, 1: 1}
    assert EdgesToTheNewestReceiverCheckpointOnly(example).recovery_line() == {0: 1, 1: 2}


def test_a_receiver_ahead_of_an_initial_checkpoint_is_not_on_the_line() -> None:
    example = Example({0: [Positions((), (0,))], 1: at_inputs(0, 3)}, ONE)
    assert recovery_line(*example) == CheckpointGraph(example).recovery_line() == {0: 0, 1: 0}
    assert NoEdgesFromInitialCheckpoints(example).recovery_line() == {0: 0, 1: 1}


def test_equal_positions_fit_together() -> None:
    example = Example({0: [Positions((), (0,)), Positions((), (4,))], 1: at_inputs(0, 4)}, ONE)
    assert recovery_line(*example) == {0: 1, 1: 1}


ONE = [LineChannel(0, 0, 1, 0)]


def at_inputs(*positions: int) -> list[Positions]:
    return [Positions((position,), ()) for position in positions]


def test_positions_do_not_describe_a_channel_that_is_not_fifo() -> None:
    """A receiver that took messages 0 and 2, and calls that position 3, seems to fit a sender that sent three: message
    1 would be lost. Positions are those of FIFO channels: a link refuses a frame that is not the next one
    (``test_a_gap_in_the_frames_is_an_error`` in ``tests/unit/link/test_machine.py``)."""
    taken = {0, 2}
    line = recovery_line({0: [Positions((), (0,)), Positions((), (3,))], 1: at_inputs(0, max(taken) + 1)}, ONE)
    assert line == {0: 1, 1: 1}
    assert set(range(3)) - taken == {1}
    contiguous = next(position for position in range(4) if position not in taken)
    assert contiguous == 1


# ---- the domino effect


def figure_5(forces: bool) -> History:
    """The cyclic history of CheckMate's figure 5, message by message as in its text. Checkpoint <i, x> there is x - 1
    of task i - 1 here."""
    history = History(3, [(0, 1), (1, 2), (2, 0)], forces)
    to_second, to_third, to_first = history.wires

    def message(wire: Wire) -> None:
        history.send(wire)
        history.take([wire])

    message(to_third)  # m1
    message(to_second)  # m2
    history.checkpoint(1)
    message(to_first)  # m3
    history.checkpoint(0)
    message(to_second)  # m4
    message(to_third)  # m5
    history.checkpoint(1)
    history.checkpoint(2)
    message(to_first)  # m6
    history.checkpoint(0)
    return history


def saved_line(history: History) -> dict[int, int]:
    saved = {task: [positions for positions, _ in saved] for task, saved in enumerate(history.saved)}
    return recovery_line(saved, history.channels())


def test_uncoordinated_checkpoints_fall_back_to_the_initial_ones_in_figure_5() -> None:
    history = figure_5(forces=False)
    assert [len(saved) for saved in history.saved] == [3, 3, 2]
    assert saved_line(history) == {0: 0, 1: 0, 2: 0}
    assert history.useless() == {(0, 1), (1, 1), (2, 1)}


def test_checkpoints_forced_by_hmnr_prevent_the_fall_in_figure_5() -> None:
    history = figure_5(forces=True)
    assert history.forced
    assert not history.useless()
    assert all(index >= 1 for index in saved_line(history).values())
