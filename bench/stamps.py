"""What the stamps of communication-induced checkpoints cost (E10): bytes per frame, for many simulated workers.

The state machine and the stamps are those that ship, time is virtual, and a frame is taken as soon as it is cut. All
tasks take snapshots by clocks of their own, and more where the protocol forces them. Compared are the stamps as they
travel, as differences on each connection, with a msgpack array of the same clock, truth values and counts on every
frame, which is what CheckMate's implementation sends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click
import msgspec

from clonos_py.channel.stamps import HmnrStamp, StampWriter
from clonos_py.cli.tables import show
from clonos_py.task.checkpointing.hmnr import Hmnr

ROWS_PER_FRAME = (1, 64, 4_096)
ROW_BYTES = 100
"""Of a bid, by the official generator."""


class Traffic(NamedTuple):
    """Checkpoints of all tasks. Bytes of the stamps of the frames that were measured: as they travel, as msgpack of the
    vectors, and whole."""

    local: int
    forced: int
    frames: int
    travelled: int
    plain: int
    whole: int

    def overhead(self, rows: int, plain: bool = False) -> float:
        """All bytes over those of the rows, with so many of them in a frame."""
        return 1 + (self.plain if plain else self.travelled) / self.frames / (rows * ROW_BYTES)


def traffic(workers: int, frames_per_s: float, seconds: float, cyclic: bool = False, seed: int = 1) -> Traffic:
    """Three tasks of each of so many workers, all-to-all between them twice, and, if ``cyclic``, from the last to the
    first. Each channel has its own phase, each task takes a checkpoint every 5 s +-20%. Measured are the channels to
    one task in eight, after the first interval."""
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
    """Lists of truth values and of numbers, as the reference implementation sends them."""
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
