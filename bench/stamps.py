"""What the stamps of communication-induced checkpoints cost (E10): bytes per frame, for many simulated workers.

Each worker runs a task of every stage; each stage sends to the next by a shuffle, every task to every task. All tasks
take snapshots by clocks of their own, and more where the protocol forces them. Virtual time: the state machine and the
stamps are those that ship, the network delays are drawn. Compared are the stamps as they travel, as differences on each
connection, with a msgpack array of the same clock, truth values and counts on every frame, which is what CheckMate's
implementation sends. The first interval warms up.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import msgspec

from clonos_py.channel.stamps import HmnrStamp, StampReader, StampWriter
from clonos_py.cli.tables import show
from clonos_py.task.checkpointing.hmnr import Hmnr

ROWS_PER_FRAME = (1, 64, 4_096)
ROW_BYTES = 100
"""Of a bid, by the official generator."""
_DELAY_S = (0.001, 0.02)
_JITTER = 0.2


@dataclass
class StampTally:
    """Of the frames that were cut after the first interval, and all snapshots."""

    tasks: int = 0
    frames: int = 0
    stamp_bytes: int = 0
    plain_bytes: int = 0
    snapshots: int = 0
    forced: int = 0

    def overhead(self, rows: int, plain: bool = False) -> float:
        """All bytes over those of the rows, with so many of them in a frame."""
        stamp_bytes = self.plain_bytes if plain else self.stamp_bytes
        return 1 + stamp_bytes / self.frames / (rows * ROW_BYTES)


class _Channel:
    """From task to task, in order. ``under_way``: when frames arrive, and their stamps as they travel."""

    def __init__(self, sender: int, receiver: int, tasks: int) -> None:
        self.sender, self.receiver = sender, receiver
        self.writer, self.reader = StampWriter(), StampReader(tasks)
        self.under_way: deque[bytes] = deque()
        self.arrives_s = 0.0


class StampSimulation:
    """``workers`` with ``stages`` tasks each, for ``seconds``. Equal seeds give equal figures."""

    def __init__(
        self, workers: int, stages: int, seconds: float, frames_per_s: float, interval_s: float, seed: int = 1
    ) -> None:
        self._seconds, self._gap_s, self._interval_s = seconds, 1 / frames_per_s, interval_s
        self._random = random.Random(seed)
        tasks = workers * stages
        self.tally = StampTally(tasks)
        self._states = [Hmnr(task, tasks) for task in range(tasks)]
        self._channels = [
            _Channel(stage * workers + sender, (stage + 1) * workers + receiver, tasks)
            for stage in range(stages - 1)
            for sender in range(workers)
            for receiver in range(workers)
        ]
        self._waiting: list[tuple[float, int, int]] = []
        """When, what (a snapshot, a frame that is cut, one that arrives), and of which task or channel."""
        for task in range(tasks):
            heapq.heappush(self._waiting, (self._random.random() * interval_s, 0, task))
        for number in range(len(self._channels)):
            heapq.heappush(self._waiting, (self._random.random() * self._gap_s, 1, number))

    def run(self) -> StampTally:
        """To its end."""
        actions = (self._snapshot_due, self._cut, self._arrived)
        while self._waiting and self._waiting[0][0] <= self._seconds:
            now_s, what, number = heapq.heappop(self._waiting)
            actions[what](now_s, number)
        return self.tally

    def _snapshot_due(self, now_s: float, task: int) -> None:
        self._snapshot(task)
        jitter = 1 + _JITTER * (2 * self._random.random() - 1)
        heapq.heappush(self._waiting, (now_s + self._interval_s * jitter, 0, task))

    def _snapshot(self, task: int) -> None:
        self._states[task].snapshot()
        self.tally.snapshots += 1

    def _cut(self, now_s: float, number: int) -> None:
        channel, tally = self._channels[number], self.tally
        state = self._states[channel.sender]
        state.sent(channel.receiver)
        stamp = state.stamp()
        travels = channel.writer.write(stamp)
        if now_s >= self._interval_s:
            tally.frames += 1
            tally.stamp_bytes += len(travels)
            tally.plain_bytes += len(plain(stamp))
        channel.under_way.append(travels)
        channel.arrives_s = max(channel.arrives_s, now_s + self._random.uniform(*_DELAY_S))
        heapq.heappush(self._waiting, (channel.arrives_s, 2, number))
        heapq.heappush(self._waiting, (now_s + self._gap_s, 1, number))

    def _arrived(self, now_s: float, number: int) -> None:
        channel = self._channels[number]
        stamp = channel.reader.read(channel.under_way.popleft())
        state = self._states[channel.receiver]
        if state.must_force([stamp]):
            self._snapshot(channel.receiver)
            self.tally.forced += 1
        state.took(stamp)


def plain(stamp: HmnrStamp) -> bytes:
    """The same vectors in msgpack."""
    tasks = range(len(stamp.checkpoints))
    greater, taken = ([bool(bits >> task & 1) for task in tasks] for bits in (stamp.greater, stamp.taken))
    return msgspec.msgpack.encode((stamp.clock, greater, taken, stamp.checkpoints))


def _rows(
    workers: Sequence[int], stages: int, seconds: float, frames_per_s: float, interval_s: float
) -> Iterator[tuple[str, ...]]:
    for count in workers:
        found = StampSimulation(count, stages, seconds, frames_per_s, interval_s).run()
        per_frame, per_frame_plain = found.stamp_bytes / found.frames, found.plain_bytes / found.frames
        yield (
            str(count),
            str(found.tasks),
            f"{found.forced / found.snapshots:.0%}",
            f"{per_frame:.1f}",
            f"{per_frame_plain:.0f}",
            f"{per_frame / per_frame_plain:.3f}",
            *(f"{found.overhead(rows):.4f} ({found.overhead(rows, plain=True):.3f})" for rows in ROWS_PER_FRAME),
        )


def run(workers: str, stages: int, seconds: float, frames_per_s: float, interval_s: float) -> None:
    """Measures and prints."""
    counts = [int(word) for word in workers.split(",")]
    headings = (
        "workers", "tasks", "forced", "bytes per frame", "msgpack", "ratio",
        *(f"overhead at {rows:,} rows (msgpack)" for rows in ROWS_PER_FRAME),
    )  # fmt: skip
    title = f"Stamps, {stages} stages, {frames_per_s:g} frames a second and channel, interval {interval_s:g} s"
    show(title, headings, _rows(counts, stages, seconds, frames_per_s, interval_s))


command = click.Command(
    "stamps",
    callback=run,
    params=[
        click.Option(["--workers"], default="10,50", show_default=True, help="Simulated workers, one run each."),
        click.Option(["--stages"], type=click.IntRange(2), default=3, show_default=True, help="Tasks of a worker."),
        click.Option(["--seconds"], type=float, default=15.0, show_default=True, help="Virtual time of a run."),
        click.Option(["--frames-per-s"], type=float, default=20.0, show_default=True, help="On each channel."),
        click.Option(["--interval-s"], type=float, default=5.0, show_default=True, help="Between own snapshots."),
    ],
    help="What the stamps of communication-induced checkpoints cost, for many simulated workers.",
)
