"""``clonos sim``: runs generated jobs under generated failures and schedules, to find wrong results."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from clonos_py.runtime.interrupts import held_back
from clonos_py.runtime.sim.campaign import Tally, explain, run_seeds
from clonos_py.runtime.sim.generator import FAULTS, RECOVERIES, TASKS_MAX, Range
from clonos_py.settings.protocols import DEFAULT_PROTOCOL, PROTOCOL_NAMES, PROTOCOLS

MIXED = "mixed"

_CHUNK = 25
"""The number of seeds that a process runs at a time."""
_FAILING_MAX = 20
"""The run stops after this many failing seeds, as more would give no new information."""


class Depth(click.ParamType[int | None]):
    """A sharing depth: the number of hops that determinants travel; -1 for full, None for any."""

    name = "N|full|mixed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value in ("full", "mixed"):
            return -1 if value == "full" else None
        if not isinstance(value, str) or not value.isdigit():
            self.fail(f"{value!r} is not a sharing depth: write a number of hops, 'full' or 'mixed'", param, ctx)
        return int(value)


def _sim(
    seeds: int, start: int, faults: str, depth: int | None, tasks: int, protocol: str, cycles: bool, recovery: str
) -> int:
    """The body of the command. The exit code is 1 if a rule was violated."""
    named = tuple(name.strip() for name in faults.split(",") if name.strip() not in ("", "none"))
    asked = None if recovery == MIXED else recovery
    found = next((known for known in PROTOCOLS if known.name == protocol), None)
    range_ = Range(named, depth, tasks, protocol=found, cycles=cycles, recovery=asked)
    started = time.monotonic()
    tally = _run_all(start, seeds, range_)
    seconds = time.monotonic() - started
    failing = sorted(tally.failing)
    for seed, problem in failing:
        again = _command(seed, faults, depth, tasks, protocol, cycles, recovery)
        click.echo(f"seed {seed}: {problem}\n  again: {again}")
    if failing:
        click.echo("\n".join(explain(failing[0][0], range_)))
    rate = tally.seeds / max(seconds, 1e-3)
    result = f"{len(failing)} failed" if failing else "no violation"
    click.echo(f"{tally.seeds:,} seeds, {seconds:.0f} s ({rate:,.0f}/s), {tally}: {result}")
    return 1 if failing else 0


def _run_all(start: int, seeds: int, range_: Range) -> Tally:
    tally = Tally()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=seeds)
        with closing(_parts(start, seeds, range_)) as parts:
            for part in parts:
                tally.add(part)
                progress.update(bar, completed=tally.seeds, description=f"{len(tally.failing)} failing")
                if len(tally.failing) >= _FAILING_MAX:
                    break
    return tally


def _parts(start: int, seeds: int, range_: Range) -> Generator[Tally]:
    """Runs all seeds, on several processes if there are enough chunks, and yields partial tallies."""
    chunks = [(first, min(_CHUNK, start + seeds - first)) for first in range(start, start + seeds, _CHUNK)]
    processes = min(len(os.sched_getaffinity(0)), len(chunks))
    if processes < 2:
        for first, count in chunks:
            yield run_seeds(first, count, range_)
        return
    spawning = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=spawning, initializer=_end_with_the_command)
    try:
        with held_back():  # a pool interrupted here, or while it locks results, never ends
            found = pool.map(run_seeds, *zip(*chunks, strict=True), itertools.repeat(range_))
        yield from found
    finally:
        for process in multiprocessing.active_children():
            process.terminate()  # its result is not needed any more
        pool.shutdown(cancel_futures=True)


def _end_with_the_command() -> None:
    """Makes a process of the pool exit when the command's process has ended, even if that was killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="command-watch").start()


def _command(seed: int, faults: str, depth: int | None, tasks: int, protocol: str, cycles: bool, recovery: str) -> str:
    """The command line that replays a seed, with all options that are not defaults."""
    words = ["clonos sim", f"--start {seed}", "--seeds 1"]
    words += [f"--faults {faults}"] if faults != ",".join(FAULTS) else []
    words += [f"--depth {'full' if depth < 0 else depth}"] if depth is not None else []
    words += [f"--tasks {tasks}"] if tasks != TASKS_MAX else []
    words += [f"--protocol {protocol}"] if protocol != DEFAULT_PROTOCOL.name else []
    words += ["--cycles"] if cycles else []
    words += [f"--recovery {recovery}"] if recovery != MIXED else []
    return " ".join(words)


command = click.Command(
    "sim",
    callback=_sim,
    params=[
        click.Option(["--seeds"], type=click.IntRange(1), default=1_000, show_default=True, help="How many runs."),
        click.Option(["--start"], type=click.IntRange(0), default=0, show_default=True, help="The first seed."),
        click.Option(
            ["--faults"],
            default=",".join(FAULTS),
            show_default=True,
            metavar="LIST",
            help="Which faults may happen, or none.",
        ),
        click.Option(
            ["--depth"], type=Depth(), default="mixed", show_default=True, help="Sharing depth; mixed: any, by seed."
        ),
        click.Option(
            ["--tasks"],
            type=click.IntRange(2),
            default=TASKS_MAX,
            show_default=True,
            help="The most tasks that a job may have.",
        ),
        click.Option(
            ["--protocol"],
            type=click.Choice([*PROTOCOL_NAMES, MIXED]),
            default=DEFAULT_PROTOCOL.name,
            show_default=True,
            help="Checkpoint protocol; mixed: any, by seed.",
        ),
        click.Option(["--cycles"], is_flag=True, help="Each job has a loop."),
        click.Option(
            ["--recovery"],
            type=click.Choice([*RECOVERIES, MIXED]),
            default=MIXED,
            show_default=True,
            help="How jobs recover; mixed: either, or neither (at-least-once), by seed.",
        ),
    ],
    help="""Runs generated jobs under generated failures and checks every step and every result.

    A seed determines everything: the graph, how its operators use clocks, random numbers and servers, the delays, and
    which processes fail when. Exits with 1 if a rule was violated, and prints the seed, the command that repeats it,
    and the smallest run that still fails.

    \b
    Examples:
      clonos sim --seeds 100000
      clonos sim --seeds 2000 --faults kill,partition --depth mixed
      clonos sim --seeds 2000 --protocol unaligned --cycles
      clonos sim --seeds 2000 --protocol mixed --recovery rollback
      clonos sim --start 4711 --seeds 1
    """,
)
