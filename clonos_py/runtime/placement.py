"""The placement of processes on nodes and in host processes. No I/O.

A process is placed on the node with the fewest processes of its task, if possible one with none. A *host process*
is a process of the operating system. Several standbys, up to the setting, share one until one of them is promoted: then
the host process belongs to that task and takes no further standbys. The loss of a node must not turn several of them
into tasks of one process, so those whose tasks run on the same other node do not share.

A process that needs resources goes to a node that has them left, and shares no host process: what the platform reserves
for a host process, and the limit of its memory, are those of one task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.model.resources import NO_RESOURCES, Resources

SUSPECT_S = 30.0
"""How long a node is avoided after a process died there, unless another process there answers. By then Ray itself has
found out whether the node is gone."""


class Seat(NamedTuple):
    """Where a process goes. ``host_process``: the number of the first process placed there; its own, if it is the
    first."""

    node: str
    host_process: int


class _Placed(NamedTuple):
    """``claim``: what the platform has not reserved for the process yet."""

    task: TaskId
    seat: Seat
    claim: Resources = NO_RESOURCES


class Placement:
    """Places processes, and holds where each one is. A standby on the node of its task would be lost together with it,
    so both go to different nodes. Where a process has just died, the whole node may be gone: it is avoided until
    another process there answers."""

    def __init__(self, standbys_per_host: int = 1) -> None:
        self._standbys_per_host = standbys_per_host
        self._placed: dict[int, _Placed] = {}
        self._closed: set[int] = set()
        self._died_s: dict[str, float] = {}
        self._now_s = 0.0

    def place(
        self,
        number: int,
        task: TaskId,
        nodes: Sequence[str],
        shares: bool = False,
        demand: Resources = NO_RESOURCES,
        free: Mapping[str, Resources] = MappingProxyType({}),
    ) -> Seat | None:
        """Chooses the seat of a process on one of ``nodes`` (not empty). ``shares``: it may share a host process.
        ``free``: by node, what the platform has not reserved. None if no node has what it demands."""
        if demand:
            nodes = [node for node in nodes if demand.fits_in(free.get(node, NO_RESOURCES) - self._claimed(node))]
            shares = False
        if not nodes:
            return None
        of_task = Counter(placed.seat.node for placed in self._placed.values() if placed.task == task)
        hosts = Counter(seat.node for seat in {placed.seat for placed in self._placed.values()})

        def cost(seat: Seat) -> tuple[bool, int, bool, int]:
            return self._suspect(seat.node), of_task[seat.node], seat.host_process == number, hosts[seat.node]

        seats = [*(self._open_hosts(task, nodes) if shares else ()), *(Seat(node, number) for node in nodes)]
        seat: Seat = min(seats, key=cost)
        self._placed[number] = _Placed(task, seat, demand)
        if not shares:
            self._closed.add(number)
        return seat

    def _open_hosts(self, task: TaskId, nodes: Sequence[str]) -> Iterator[Seat]:
        """Host processes with room for a standby of ``task``. Two standbys of a task in one would be lost together, and
        two whose tasks run on one other node would be promoted together when it is lost."""
        tasks_of: dict[Seat, list[TaskId]] = {}
        for placed in self._placed.values():
            tasks_of.setdefault(placed.seat, []).append(placed.task)
        for seat, tasks in tasks_of.items():
            has_room = len(tasks) < self._standbys_per_host and seat.host_process not in self._closed
            if has_room and task not in tasks and seat.node in nodes:
                elsewhere = self._nodes_elsewhere(task, seat.node)
                if all(elsewhere.isdisjoint(self._nodes_elsewhere(other, seat.node)) for other in tasks):
                    yield seat

    def _nodes_elsewhere(self, task: TaskId, node: str) -> set[str]:
        """The other nodes that have a process of the task."""
        return {placed.seat.node for placed in self._placed.values() if placed.task == task} - {node}

    def _claimed(self, node: str) -> Resources:
        """What the platform has still to reserve there for processes that were placed."""
        here = (placed.claim for placed in self._placed.values() if placed.claim and placed.seat.node == node)
        return sum(here, NO_RESOURCES)

    def put(self, number: int, task: TaskId, seat: Seat) -> None:
        """Records where a process really is. The platform has reserved what it needs."""
        if number not in self._placed:
            self._closed.add(seat.host_process)
        self._placed[number] = _Placed(task, seat)

    def promoted(self, number: int) -> None:
        """The process becomes active, and its host process takes no further standbys."""
        if number in self._placed:
            self._closed.add(self._placed[number].seat.host_process)

    def belongs_to_a_task(self, host_process: int) -> bool:
        """Whether the host process takes no standbys, since a task runs or has run there."""
        return host_process in self._closed

    def take_place(self, number: int, task: TaskId, before: int) -> Seat | None:
        """A process begins in the seat of the process ``before``, which leaves. None if ``before`` has no seat."""
        if (placed := self._placed.get(before)) is None:
            return None
        self.put(number, task, placed.seat)
        self.leave(before)
        return placed.seat

    def host_process_of(self, number: int) -> int:
        """The host process of a process; -1 if the process was not placed."""
        return self._placed[number].seat.host_process if number in self._placed else -1

    def sharing(self, number: int) -> list[int]:
        """All processes in the host process of a process, itself included."""
        host_process = self.host_process_of(number)
        return [other for other, placed in self._placed.items() if placed.seat.host_process == host_process]

    def seen(self, number: int, now_s: float) -> None:
        """The process has answered, so its node is not suspected any more."""
        self._now_s = now_s
        if number in self._placed:
            self._died_s.pop(self._placed[number].seat.node, None)

    def leave(self, number: int) -> str | None:
        """The process has ended in order. Returns its node, None if it was not placed."""
        if (placed := self._placed.pop(number, None)) is None:
            return None
        if all(other.seat.host_process != placed.seat.host_process for other in self._placed.values()):
            self._closed.discard(placed.seat.host_process)
        return placed.seat.node

    def remove(self, number: int, now_s: float) -> None:
        """The process has died, and with it all others in its host process. Their node is suspected."""
        self._now_s = now_s
        for other in self.sharing(number):
            if (node := self.leave(other)) is not None:
                self._died_s[node] = now_s

    def _suspect(self, node: str) -> bool:
        died_s = self._died_s.get(node)
        return died_s is not None and self._now_s - died_s < SUSPECT_S
