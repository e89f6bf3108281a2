"""Tasks that send, take and checkpoint without an engine, and which of their checkpoints are useless, by definition.

A history holds, for each message, the interval between two checkpoints in which it was sent, and that in which it was
taken. Everything else follows: positions, recovery lines, Z-cycles.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from clonos_py.channel.stamps import HmnrStamp
from clonos_py.checkpoint.line import LineChannel, Positions, recovery_line
from clonos_py.protocols.induced.hmnr import Hmnr

Checkpoint = tuple[int, int]
"""(task, index); index 0 is the initial one."""


@dataclass(eq=False)
class Wire:
    """One channel. ``stamps``: of its messages, all that were sent; lists of intervals are by message, too."""

    sender: int
    receiver: int
    stamps: list[HmnrStamp] = field(default_factory=list)
    sent_in: list[int] = field(default_factory=list)
    taken_in: list[int] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return len(self.sent_in) - len(self.taken_in)


class History:
    """The history of so many tasks. ``forces``: they take the checkpoints that HMNR forces."""

    def __init__(self, tasks: int, channels: Sequence[tuple[int, int]], forces: bool = True) -> None:
        self.tasks = range(tasks)
        self.forces = forces
        self.forced = 0
        self.wires = [Wire(*channel) for channel in channels]
        self.machines = [Hmnr(task, tasks) for task in self.tasks]
        self.saved = [[(self._positions(task), self.machines[task].encode())] for task in self.tasks]

    # ---- actions

    def send(self, wire: Wire) -> None:
        machine = self.machines[wire.sender]
        machine.sent(wire.receiver)
        wire.stamps.append(machine.stamp())
        wire.sent_in.append(self._interval(wire.sender))

    def take(self, wires: Sequence[Wire]) -> None:
        """One message of each, together; all have the same receiver."""
        task, machine = wires[0].receiver, self.machines[wires[0].receiver]
        taken: Counter[int] = Counter()
        stamps = []
        for wire in wires:
            stamps.append(wire.stamps[len(wire.taken_in) + taken[id(wire)]])
            taken[id(wire)] += 1
        if self.forces and machine.must_force(stamps):
            self.forced += 1
            self.checkpoint(task)
        for wire, stamp in zip(wires, stamps, strict=True):
            machine.took(stamp)
            wire.taken_in.append(self._interval(task))

    def checkpoint(self, task: int) -> None:
        self.machines[task].snapshot()
        self.saved[task].append((self._positions(task), self.machines[task].encode()))

    def roll_back(self, restored: Callable[[int, bytes], Hmnr]) -> None:
        """All tasks continue from the recovery line. Messages in flight keep their stamps."""
        histories = {task: [positions for positions, _ in saved] for task, saved in enumerate(self.saved)}
        line = recovery_line(histories, self.channels())
        for task, index in line.items():
            positions, state = self.saved[task][index]
            del self.saved[task][index + 1 :]
            self.machines[task] = restored(task, state)
            for wire, position in zip(self._outputs(task), positions.outputs, strict=True):
                del wire.sent_in[position:], wire.stamps[position:]
            for wire, position in zip(self._inputs(task), positions.inputs, strict=True):
                del wire.taken_in[position:]

    # ---- results

    def histories(self) -> dict[int, list[Positions]]:
        """For ``recovery_line``; the present state of each task is its newest checkpoint."""
        return {
            task: [*(positions for positions, _ in saved), self._positions(task)]
            for task, saved in enumerate(self.saved)
        }

    def channels(self) -> list[LineChannel[int]]:
        return [
            LineChannel(
                wire.sender,
                self._outputs(wire.sender).index(wire),
                wire.receiver,
                self._inputs(wire.receiver).index(wire),
            )
            for wire in self.wires
        ]

    def useless(self) -> set[Checkpoint]:
        """The checkpoints on Z-cycles (Netzer and Xu)."""
        return {checkpoint for checkpoint in self.checkpoints() if self._on_a_cycle(*checkpoint)}

    def without_a_line(self) -> set[Checkpoint]:
        """The checkpoints that no consistent set of checkpoints holds, one of each task: all sets are tried. The
        present state of a task counts as a checkpoint of it."""
        useful: set[Checkpoint] = set()
        histories, channels = self.histories(), self.channels()
        for indexes in product(*(range(len(histories[task])) for task in self.tasks)):
            at = [histories[task][index] for task, index in enumerate(indexes)]
            if all(at[c.receiver].inputs[c.input] <= at[c.sender].outputs[c.output] for c in channels):
                useful.update(enumerate(indexes))
        return set(self.checkpoints()) - useful

    def checkpoints(self) -> Iterator[Checkpoint]:
        return ((task, index) for task in self.tasks for index in range(len(self.saved[task])))

    def _on_a_cycle(self, task: int, index: int) -> bool:
        """Follows all chains of messages that begin after the checkpoint. ``reached``: by task, the earliest interval
        in which one arrived; the chain continues with messages sent in it or later."""
        reached = {task: index}
        found = True
        while found:
            found = False
            for wire in self.wires:
                for sent_in, taken_in in zip(wire.sent_in, wire.taken_in, strict=False):
                    if sent_in < reached.get(wire.sender, sent_in + 1):
                        continue
                    if wire.receiver == task and taken_in < index:
                        return True
                    if taken_in < reached.get(wire.receiver, taken_in + 1):
                        reached[wire.receiver] = taken_in
                        found = True
        return False

    def _interval(self, task: int) -> int:
        return len(self.saved[task]) - 1

    def _positions(self, task: int) -> Positions:
        taken = tuple(len(wire.taken_in) for wire in self._inputs(task))
        return Positions(taken, tuple(len(wire.sent_in) for wire in self._outputs(task)))

    def _inputs(self, task: int) -> list[Wire]:
        return [wire for wire in self.wires if wire.receiver == task]

    def _outputs(self, task: int) -> list[Wire]:
        return [wire for wire in self.wires if wire.sender == task]


def drawn_history(
    seed: int,
    cyclic: bool = True,
    forces: bool = True,
    tasks_max: int = 6,
    steps: int = 80,
    restored: Callable[[int, bytes], Hmnr] | None = None,
) -> History:
    """Tasks that send, take and checkpoint at random, and, if ``restored`` is given, are rolled back sometimes. Two
    tasks may be joined by two channels, and, if ``cyclic``, a task by one to itself."""
    draw = random.Random(seed)
    tasks = draw.randint(2, tasks_max)
    pairs = [(a, b) for a in range(tasks) for b in range(tasks) if a < b or cyclic]
    channels = [pair for pair in pairs for _ in range(draw.choice((0, 0, 1, 1, 1, 2)))] or pairs[-1:]
    history = History(tasks, channels, forces)
    for _ in range(steps):
        action = draw.choice(("send", "send", "take", "take", "checkpoint"))
        if action == "send":
            history.send(draw.choice(history.wires))
        elif action == "checkpoint":
            history.checkpoint(draw.randrange(tasks))
        elif waiting := [wire for wire in history.wires if wire.waiting]:
            receiver = draw.choice(waiting).receiver
            ready = [wire for wire in waiting if wire.receiver == receiver]
            together = [wire for wire in ready for _ in range(draw.randint(0, wire.waiting))][:4] or ready[:1]
            history.take(together)
        if restored is not None and draw.random() < 0.03:
            history.roll_back(restored)
    return history
