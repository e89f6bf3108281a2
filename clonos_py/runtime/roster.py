"""The processes of a job, between the coordinator that requests them and the platform that runs them. No I/O.

    requested --created--> up
    requested, up --dismissed--> leaving
    up --another begins in its place--> gone
    leaving, once it is created --> gone
    any --its host process ends--> gone

A process is placed when it is requested (``placement.py``). The platform creates it later, and until then cannot end it
without the others in its host process. So one that is dismissed before stays in the roster until it is created: its
host process must not seem empty meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clonos_py.job.events import StartProcess
from clonos_py.model.ids import TaskId
from clonos_py.model.resources import Resources
from clonos_py.runtime.placement import Placement, Seat

NO_PLACE = "there was no host process to begin in"
"""Why a process has died that was to begin in the place of another, which has none."""


@dataclass
class _Member:
    task: TaskId
    host_process: int
    created: bool = False
    dismissed: bool = False


class Roster:
    """The processes that one coordinator has requested or taken over."""

    def __init__(self, standbys_per_process: int, gone: Callable[[int], None]) -> None:
        """``gone`` is called with the number of each process that leaves the roster."""
        self._placement = Placement(standbys_per_process)
        self._gone = gone
        self._members: dict[int, _Member] = {}

    def __contains__(self, number: int) -> bool:
        """Whether the process belongs to the job. One that is dismissed does not."""
        member = self._members.get(number)
        return member is not None and not member.dismissed

    def __iter__(self) -> Iterator[int]:
        """All processes, also those that are to leave."""
        return iter(sorted(self._members))

    def host_process(self, number: int) -> int | None:
        """The host process of a process; None if it has left."""
        member = self._members.get(number)
        return None if member is None else member.host_process

    def in_host_process(self, host_process: int) -> list[int]:
        """All processes in a host process, also those that are to leave it."""
        return sorted(number for number, member in self._members.items() if member.host_process == host_process)

    def belongs_to_a_task(self, host_process: int) -> bool:
        """Whether a task runs or has run in a host process."""
        return self._placement.belongs_to_a_task(host_process)

    # ---- processes come

    def place(
        self, request: StartProcess, nodes: Sequence[str], free: Mapping[str, Resources] = MappingProxyType({})
    ) -> Seat | None:
        """Chooses where a requested process begins: on one of ``nodes``, or in the place of another (``reuse``). The
        other stays in the roster until ``drop``. ``free``: see ``Placement.place``. None if it has no place: no node
        has room, or the other has died, or has not reported its place yet."""
        number, task = request.process, request.task
        if request.reuse is None:
            seat = self._placement.place(number, task, nodes, request.shares, request.demand, free)
        else:
            seat = self._placement.take_place(number, task, request.reuse)
        if seat is not None:
            self._members[number] = _Member(task, seat.host_process)
        return seat

    def adopt(self, number: int, task: TaskId, host_process: int) -> None:
        """A process of a lost coordinator."""
        self._members[number] = _Member(task, host_process, created=True)

    def created(self, number: int) -> None:
        """The platform has created a requested process."""
        member = self._members[number]
        member.created = True
        if member.dismissed:
            self.drop(number)

    def introduce(self, number: int, node: str) -> bool:
        """A process has reported its node. False if it does not belong to the job any more."""
        if number not in self:
            return False
        member = self._members[number]
        self._placement.put(number, member.task, Seat(node, member.host_process))
        return True

    def seen(self, number: int, now_s: float) -> None:
        """A process has sent a message, so its node is not suspected."""
        self._placement.seen(number, now_s)

    def promoted(self, number: int) -> None:
        """A process becomes a task's, and its host process takes no further standbys."""
        self._placement.promoted(number)

    # ---- processes go

    def dismiss(self, number: int) -> None:
        """A process is to leave in order. The others in its host process stay."""
        self._placement.leave(number)
        member = self._members.get(number)
        if member is not None:
            member.dismissed = True
            if member.created:
                self.drop(number)

    def drop(self, number: int) -> None:
        """A process has left, and the others in its host process stay."""
        self._placement.leave(number)
        if self._members.pop(number, None) is not None:
            self._gone(number)

    def end_host_process(self, host_process: int, now_s: float) -> list[int]:
        """A host process has ended, with all processes in it. Returns those that belonged to the job."""
        numbers = self.in_host_process(host_process)
        dead = [number for number in numbers if number in self]
        for number in numbers:
            self._placement.remove(number, now_s)
            self.drop(number)
        return dead
