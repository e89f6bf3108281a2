"""Measures the stamps of communication-induced checkpoints (E10): bytes per frame, for many simulated workers.

State machine and stamps are the real ones. Time is virtual, and a frame is taken as soon as it is cut. All tasks take
snapshots by their own clocks, and further ones where the protocol forces them. The stamps as they are sent (differences
to the previous stamp of the connection) are compared with a msgpack array of the same clock, booleans and counts on
every frame, as CheckMate's implementation sends it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click
import msgspec

from clonos_py.channel.stamps import HmnrStamp, StampWriter
from clonos_py.cli.tables import show
from clonos_py.protocols.induced.hmnr import Hmnr

ROWS_PER_FRAME = (1, 64, 4_096)
ROW_BYTES = 100
"""The size of a bid of the official generator."""


class Traffic(NamedTuple):
    """Totals of a simulation: local and forced checkpoints of all tasks, and bytes of the stamps of measured frames, as
    they are sent (``travelled``), as msgpack of the vectors (``plain``), and without differences (``whole``)."""

    local: int
    forced: int
    frames: int
    travelled: int
    plain: int
    whole: int

    def overhead(self, rows: int, plain: bool = False) -> float:
        """The ratio of all bytes to the bytes of the rows, with ``rows`` rows in a frame."""
        return 1 + (self.plain if plain else self.travelled) / self.frames / (rows * ROW_BYTES)


def traffic(workers: int, frames_per_s: float, seconds: float, cyclic: bool = False, seed: int = 1) -> Traffic:
    """Simulates three vertices with one task on each worker. Two all-to-all shuffles join them, and a third leads from
    the last vertex to the first if ``cyclic``. Each channel sends at a random phase. Each task takes a checkpoint every
    5 s +-20%. Only the channels to every eighth task are measured, after the first 5 s."""
    draw = random.Random(seed)
    tasks = 3 * workers
    machines = [Hmnr(task, tasks) for task in range(tasks)]
    levels = [range(level * workers, (level + 1) * workers) for level in (0, 1, 2)]
    joined = [(0, 1), (1, 2), (2, 0)][: 3 if cyclic else 2]
    channels = [(a, b) for above, below in joined for a in levels[above] for b in levels[below]]
    events: list[tuple[float, int, int]] = []
    for a, b in channels:
        phase = draw.random() / frames_per_s
        events += [(phase + number / frames_per_s, a, b) for number in range(round(seconds * frames_per_s))]
    for task in range(tasks):
        at = 5 * draw.random()
        while at < seconds:
            events.append((at, task, -1))
            at += 5 * draw.uniform(0.8, 1.2)
    writers = {(a, b): StampWriter() for a, b in channels if not b % 8}
    local = forced = frames = travelled = plain = whole = 0
    for at, a, b in sorted(events):
        if b < 0:
            machines[a].snapshot()
            local += 1
            continue
        machines[a].sent(b)
        stamp = machines[a].stamp()
        if machines[b].must_force([stamp]):
            machines[b].snapshot()
            forced += 1
        machines[b].took(stamp)
        if writer := writers.get((a, b)):
            data = writer.write(stamp)
            if at >= 5:
                frames += 1
                travelled += len(data)
                plain += len(as_msgpack(stamp))
                whole += len(stamp.encode())
    return Traffic(local, forced, frames, travelled, plain, whole)


def as_msgpack(stamp: HmnrStamp) -> bytes:
    """The stamp as lists of booleans and numbers in msgpack, as the reference implementation sends it."""
    tasks = range(len(stamp.checkpoints))
    greater, taken = ([bool(bits >> task & 1) for task in tasks] for bits in (stamp.greater, stamp.taken))
    return msgspec.msgpack.encode([stamp.clock, greater, taken, list(stamp.checkpoints)])


def _rows(workers: Sequence[int], seconds: float, frames_per_s: float, cyclic: bool) -> Iterator[tuple[str, ...]]:
    for count in workers:
        found = traffic(count, frames_per_s, seconds, cyclic)
        yield (
            str(count),
            f"{found.forced / (found.local + found.forced):.0%}",
            f"{found.travelled / found.frames:.1f}",
            f"{found.plain / found.frames:.0f}",
            f"{found.travelled / found.plain:.3f}",
            *(f"{found.overhead(rows):.4f} ({found.overhead(rows, plain=True):.3f})" for rows in ROWS_PER_FRAME),
        )


def run(workers: list[int], seconds: float, frames_per_s: float, cyclic: bool) -> None:
    """Measures and prints."""
    headings = (
        "workers", "forced", "bytes per frame", "msgpack", "ratio",
        *(f"overhead at {rows:,} rows (msgpack)" for rows in ROWS_PER_FRAME),
    )  # fmt: skip
    title = f"Stamps, three tasks of each worker{' in a cycle' if cyclic else ''}, {frames_per_s:g} frames/s a channel"
    show(title, headings, _rows(workers, seconds, frames_per_s, cyclic))


command = click.Command(
    "stamps",
    callback=run,
    params=[
        click.Option(
            ["--workers"], type=click.IntRange(1), multiple=True, default=(10, 50), show_default=True,
            help="Simulated workers; once for each run.",
        ),
        click.Option(
            ["--seconds"], type=click.FloatRange(6), default=15.0, show_default=True,
            help="Virtual time of a run. The first 5, a checkpoint interval, are not measured.",
        ),
        click.Option(
            ["--frames-per-s"], type=click.FloatRange(1), default=20.0, show_default=True, help="On each channel."
        ),
        click.Option(["--cyclic"], is_flag=True, help="The last tasks send to the first ones, too."),
    ],
    help="What the stamps of communication-induced checkpoints cost, for many simulated workers.",
)  # fmt: skip
