"""Data connections that do not come back between two processes that both answer the coordinator (D9).

A connection that breaks is only a suspicion: it is opened again, mostly at once. If that fails for the connection
timeout, the two processes cannot reach each other, because of a firewall, a route or a port. The job then makes no
progress although no process has failed. So one of the two is replaced, then the other if that did not help: a
replacement may run on another node. If both replacements fail to connect, the job ends with an error that names the two
tasks. A sender that has not answered meanwhile has failed itself, which the coordinator may learn much later.
"""

from __future__ import annotations

from collections import Counter

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.ids import TaskId

_REPLACED_MAX = 2
"""Replacements for one connection without a completed checkpoint in between; after that the job ends."""


class Unreachable:
    """Tracks since when connections fail. Only ``suspect`` decides: the elapsed time alone proves nothing, because a
    receiver that has connected again sends no message about it."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._since_us: dict[tuple[int, int], int] = {}
        """By process numbers of receiver and sender: when the connection first failed."""
        self._last_failure_us: dict[tuple[TaskId, TaskId], int] = {}
        """By receiver and sender: when a connection attempt last failed."""
        self._replaced: Counter[tuple[TaskId, TaskId]] = Counter()

    @property
    def failing(self) -> int:
        """The number of connections lost since data last flowed between all tasks."""
        return len(self._since_us)

    def progress(self) -> None:
        """A checkpoint is complete: data flows between all tasks, so all connections work."""
        self._since_us.clear()
        self._last_failure_us.clear()
        self._replaced.clear()

    def settle(self) -> None:
        """Drops the connections that have not failed for the connection timeout: they work again."""
        context = self._context
        limit_us = context.now_us - context.policy.connection_timeout_us
        for pair in [pair for pair, at_us in self._last_failure_us.items() if at_us < limit_us]:
            del self._last_failure_us[pair]
            self._replaced.pop(pair, None)
        tasks = {number: process.task for number, process in context.fleet.processes.items()}
        self._since_us = {
            (r, s): at_us
            for (r, s), at_us in self._since_us.items()
            if (tasks.get(r), tasks.get(s)) in self._last_failure_us
        }

    def suspect(self, receiver: TaskProcess, sender: TaskProcess, failures: int) -> TaskProcess | None:
        """Handles a report that ``receiver`` has lost its connection to ``sender``, or could not open one, for the
        ``failures``-th time in a row. Returns the process to replace if this has lasted too long."""
        pair = receiver.number, sender.number
        self._last_failure_us[receiver.task, sender.task] = self._context.now_us
        if failures <= 1:
            self._since_us[pair] = self._context.now_us
        since_us = self._since_us.setdefault(pair, self._context.now_us)
        if self._context.now_us - since_us < self._context.policy.connection_timeout_us:
            return None
        chosen = sender if sender.last_seen_us < since_us else self._to_replace(receiver, sender)
        self._since_us = {known: at_us for known, at_us in self._since_us.items() if chosen.number not in known}
        self._replaced[receiver.task, sender.task] += 1
        return chosen

    def _to_replace(self, receiver: TaskProcess, sender: TaskProcess) -> TaskProcess:
        """The process with more failing connections. If the numbers are equal: receiver and sender in turn."""
        alive = self._context.fleet.processes
        missed = Counter(end for pair in self._since_us if alive.keys() >= set(pair) for end in pair)
        if missed[receiver.number] != missed[sender.number]:
            return max(receiver, sender, key=lambda process: missed[process.number])
        return sender if self._replaced[receiver.task, sender.task] % 2 else receiver

    def complaint(self, receiver: TaskProcess, sender: TaskProcess) -> str | None:
        """The error message if replacing the two did not help, else None."""
        if self._replaced[receiver.task, sender.task] < _REPLACED_MAX:
            return None
        limit_s = self._context.policy.connection_timeout_us / 1e6
        return (
            f"{receiver.task} ({receiver.address}) cannot connect to {sender.task} ({sender.address}), though both "
            f"answer: for {limit_s:g} s each before and after {_REPLACED_MAX} replacements; see that the nodes reach "
            "each other on all ports, or wait longer with --connection-timeout, and run the job again"
        )
