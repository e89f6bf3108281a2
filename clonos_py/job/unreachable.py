"""Data connections that do not come back between two processes that both answer the coordinator (D9).

A connection that breaks is a suspicion and no more: it is made again, mostly at once. Where that fails for the
connection timeout, the two cannot reach each other, and the job stands still though nothing has failed: a firewall, a
route, a port. Then one of them is replaced, and should that not help, the other; its replacement may be on another
node. After both in vain the job ends, naming the two.
"""

from __future__ import annotations

from collections import Counter

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.ids import TaskId

_REPLACED_MAX = 2
"""Replacements for one connection, without a checkpoint completed meanwhile; then the job ends."""


class Unreachable:
    """Knows since when connections are sought in vain. ``suspect`` decides: time alone says nothing, as a receiver
    that has found its sender is silent."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._since_us: dict[tuple[int, int], int] = {}
        """By the processes of receiver and sender."""
        self._sought_us: dict[tuple[TaskId, TaskId], int] = {}
        """By receiver and sender: when a connection was sought last."""
        self._replaced: Counter[tuple[TaskId, TaskId]] = Counter()

    @property
    def sought(self) -> int:
        """How many connections were lost since data last flowed between all tasks."""
        return len(self._since_us)

    def progress(self) -> None:
        """A checkpoint is complete: data flows between all tasks, and no connection is sought."""
        self._since_us.clear()
        self._sought_us.clear()
        self._replaced.clear()

    def settle(self) -> None:
        """Time has passed: what has not been sought for the connection timeout stands."""
        context = self._context
        limit_us = context.now_us - context.policy.connection_timeout_us
        for pair in [pair for pair, at_us in self._sought_us.items() if at_us < limit_us]:
            del self._sought_us[pair]
            self._replaced.pop(pair, None)
        tasks = {number: process.task for number, process in context.fleet.processes.items()}
        self._since_us = {
            (r, s): at_us for (r, s), at_us in self._since_us.items() if (tasks.get(r), tasks.get(s)) in self._sought_us
        }

    def suspect(self, receiver: TaskProcess, sender: TaskProcess, failures: int) -> TaskProcess | None:
        """``receiver`` has lost its connection to ``sender``, or could not make one; the ``failures``-th time in a row.
        Which of the two is to be replaced, if it has lasted too long."""
        pair = receiver.number, sender.number
        self._sought_us[receiver.task, sender.task] = self._context.now_us
        if failures <= 1:
            self._since_us[pair] = self._context.now_us
        since_us = self._since_us.setdefault(pair, self._context.now_us)
        if self._context.now_us - since_us < self._context.policy.connection_timeout_us:
            return None
        chosen = self._worse(receiver, sender)
        self._since_us = {known: at_us for known, at_us in self._since_us.items() if chosen.number not in known}
        self._replaced[receiver.task, sender.task] += 1
        return chosen

    def _worse(self, receiver: TaskProcess, sender: TaskProcess) -> TaskProcess:
        """The one that others miss, too; else each in turn, the receiver first."""
        alive = self._context.fleet.processes
        missed = Counter(end for pair in self._since_us if alive.keys() >= set(pair) for end in pair)
        if missed[receiver.number] != missed[sender.number]:
            return max(receiver, sender, key=lambda process: missed[process.number])
        return sender if self._replaced[receiver.task, sender.task] % 2 else receiver

    def complaint(self, receiver: TaskProcess, sender: TaskProcess) -> str | None:
        """What the user is told if the two have been replaced in vain."""
        if self._replaced[receiver.task, sender.task] < _REPLACED_MAX:
            return None
        limit_s = self._context.policy.connection_timeout_us / 1e6
        return (
            f"{receiver.task} ({receiver.address}) cannot connect to {sender.task} ({sender.address}), though both "
            f"answer: for {limit_s:g} s each before and after {_REPLACED_MAX} replacements; see that the nodes reach "
            "each other on all ports, or wait longer with --connection-timeout; run the job again, it resumes from its "
            "last checkpoint"
        )
