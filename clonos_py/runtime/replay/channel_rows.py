"""Finds the rows of frames among the batches that the sender's operators have emitted.

A frame holds rows of an edge in the order in which they were emitted. So the rows of a channel, counted from where the
sender begins in the replay, are those that the producer has emitted for its receiver, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from clonos_py.channel.frames import Frame
from clonos_py.columns.keys import key_groups
from clonos_py.columns.views import Ints
from clonos_py.model.ids import ChannelId, TaskId
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan
from clonos_py.process.progress import decoded
from clonos_py.runtime.replay.histories import TaskHistory
from clonos_py.runtime.replay.interval import RecordedTask


class _Cut(NamedTuple):
    """A frame. ``start``: the number of rows of the channel before it; None if it was cut before the interval."""

    start: int | None
    rows: int


class RowsOfFrame(NamedTuple):
    """Rows of one frame. ``places``: in the batch that the receiver took. ``of_channel``: by place, the number of the
    row in the channel; None for a frame that was cut before the interval."""

    number: int
    places: Ints
    of_channel: Ints | None


class ChannelRows:
    """The channels of one leg."""

    def __init__(self, plan: PhysicalPlan, recorded: Mapping[TaskId, RecordedTask]) -> None:
        self._plan = plan
        self._progress = {
            task: decoded(found.start.progress) for task, found in recorded.items() if found.start.progress is not None
        }
        self._cut: dict[ChannelId, dict[int, _Cut]] = {}
        self._rows: dict[ChannelId, int] = {}
        self._emitted: dict[ChannelId, list[tuple[int, Ints]]] = {}
        """By channel: the rows of its sender's batches that go through it."""

    def add(self, sender: TaskId, output: int, frame: Frame) -> None:
        """A frame leaves its sender. Frames that were in flight when the interval began come before others."""
        channel = self._plan.outputs[sender][output]
        progress = self._progress.get(sender)
        count = frame.rows.num_rows if frame.rows is not None else 0
        start: int | None = self._rows.get(channel, 0)
        if progress is not None and frame.seq < progress.outputs[output]:
            start = None
        else:
            self._rows[channel] = self._rows.get(channel, 0) + count
        self._cut.setdefault(channel, {})[frame.seq] = _Cut(start, count)

    def frames(self, channel: ChannelId, first: int, places: Ints) -> list[RowsOfFrame]:
        """The frames that hold these rows of the batch that consists of frame ``first`` and those behind it."""
        found = []
        low, number = 0, first
        while low <= int(places[-1]) and (cut := self._cut[channel].get(number)) is not None:
            inside = places[(places >= low) & (places < low + cut.rows)]
            if len(inside):
                found.append(RowsOfFrame(number, inside, None if cut.start is None else inside - low + cut.start))
            low += cut.rows
            number += 1
        return found

    def emitted(self, channel: ChannelId, history: TaskHistory, rows: Ints) -> list[tuple[int, Ints]]:
        """These rows of a channel, which are consecutive or in order, as rows of batches that its producer has emitted:
        (number of the batch, rows in it). Empty if it has not emitted so many."""
        edge = self._plan.edges[channel.edge]
        if channel not in self._emitted:
            self._emitted[channel] = self._shares(edge, channel, history)
        shares = self._emitted[channel]
        ends = np.cumsum([0, *(len(share) for _, share in shares)])
        at = np.searchsorted(ends, rows, side="right") - 1
        if not len(shares) or int(at[-1]) >= len(shares):
            return []
        return [(shares[n][0], shares[n][1][rows[at == n] - ends[n]]) for n in np.unique(at).tolist()]

    def _shares(self, edge: Edge, channel: ChannelId, history: TaskHistory) -> list[tuple[int, Ints]]:
        sender = self._plan.sender(channel)
        channels = [found for found in self._plan.outputs[sender] if found.edge == edge.id]
        parallelism = self._plan.by_name[edge.target].parallelism
        turn = self._turn(sender, edge, len(channels))
        shares = []
        for number, emitted in enumerate(history.operator(edge.producer).emitted):
            if emitted.port != edge.port:
                continue
            share = np.arange(emitted.rows.num_rows)
            if len(channels) > 1 and edge.partitioning is Partitioning.HASH:
                groups = key_groups(emitted.rows, edge.keys, self._plan.key_groups).astype(np.int64)
                share = np.flatnonzero(groups * parallelism // self._plan.key_groups == channel.target)
            elif len(channels) > 1 and edge.partitioning is Partitioning.REBALANCE:
                mine, turn = channels[turn] == channel, (turn + 1) % len(channels)
                share = share if mine else share[:0]
            if len(share):
                shares.append((number, share))
        return shares

    def _turn(self, sender: TaskId, edge: Edge, channels: int) -> int:
        """Which channel of a rebalancing edge got the first batch."""
        if (progress := self._progress.get(sender)) is None:
            return sender.index % max(1, channels)
        own = [other.id for other in self._plan.edges if other.source == edge.source]
        return progress.round_robin[own.index(edge.id)]
