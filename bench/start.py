"""Measures a start: the parts of the time from the command to the first result, and what each process costs.

A query runs with a sink that prints, so the first result is the first line of output. It runs on a Ray of its own, on a
Ray cluster that is already there, and in one process.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.runtime.ray.process_table import entries

_JOB = """
from clonos_py.connectors import PrintSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource

job = build("{query}", NexmarkSource(events={events}), PrintSink())
"""
_PARTS = {
    "interpreter": "interpreter",
    "command line": "imports of the command line",
    "the job's file": "the job's file, and imports to define it",
    "imports of the run": "imports to run it",
    "starting Ray": "plan",
    "connecting": "plan",
    "starting the coordinator": "Ray",
    "Deploying": "coordinator, and the first process",
    "Deployed": "other processes, connections, state",
    "first result": "first result",
    "Finished": "the rest of the job",
    "end": "end of the run",
    "exit": "end of the interpreter",
}
"""By event: the part that it ends."""
_KINDS = {
    b"ray::CoordinatorActor": "coordinator",
    b"ray::ProcessActor": "task or standbys",
    b"ray::IDLE": "Ray's idle worker",
    b"gcs_server": "Ray's head (GCS)",
    b"raylet/raylet": "Ray's raylet",
    b"dashboard/dashboard.py": "Ray's API server",
    b"dashboard/agent.py": "Ray's agent",
    b"runtime_env/agent": "Ray's agent of environments",
    b"monitor.py": "Ray's monitors",
    b"start_command": "command",
}
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")
_LIBRARIES_SHOWN = 6
_END_S_MAX = 120.0


class PartEnd(NamedTuple):
    """The end of a part, named by its event. ``cpu_s``: the processor time of the command's process so far."""

    event: str
    at_s: float
    cpu_s: float


class Cost(NamedTuple):
    """What a process has taken when the first result appeared."""

    kind: str
    cpu_s: float
    resident_bytes: int
    private_bytes: int
    """Memory that it shares with no other process."""


class Start(NamedTuple):
    """One start: the length of each part in seconds, of it in the command's process on the processor, and the costs of
    all processes."""

    parts: Mapping[str, tuple[float, float]]
    costs: Sequence[Cost]
    first_result_s: float


def started(job: Path, folder: Path, settings: Mapping[str, object]) -> Start:
    """Runs the job, and measures its start. Raises ClickException if it fails."""
    parts = folder / "parts"
    parts.unlink(missing_ok=True)
    given = [f"{key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "clonos_py.bench.start_command", str(parts), str(job), *given]
    began_s = time.time()
    environment = {**os.environ, "RAY_AUTH_MODE": "token"} if "address" in settings else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        first_s, costs = time.time(), list(_costs())
        process.stdout.read()
        code = process.wait(_END_S_MAX)
        ended_s = time.time()
        if code != 0:
            *_, reason = process.stderr.read().decode().strip().splitlines() or [f"exit code {code}"]
            raise click.ClickException(f"the run has failed: {reason}")
    found = [PartEnd(*json.loads(line)) for line in parts.read_text().splitlines()]
    return Start(_parts(found, began_s, first_s, ended_s), costs, first_s - began_s)


def _parts(
    ends: Sequence[PartEnd], began_s: float, first_s: float, ended_s: float
) -> Mapping[str, tuple[float, float]]:
    before = max((end for end in ends if end.at_s <= first_s), key=lambda end: end.at_s)
    last = ends[-1]
    marks = [*ends, PartEnd("first result", first_s, before.cpu_s), PartEnd("exit", ended_s, last.cpu_s)]
    parts: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    at_s, cpu_s = began_s, 0.0
    for mark in sorted(marks, key=lambda end: end.at_s):
        name = next(part for event, part in _PARTS.items() if mark.event.startswith(event))
        parts[name] = parts[name][0] + mark.at_s - at_s, parts[name][1] + mark.cpu_s - cpu_s
        at_s, cpu_s = mark.at_s, mark.cpu_s
    return parts


def _costs() -> Iterator[Cost]:
    """The costs of the processes of the run and of Ray that there are now."""
    for process, command in entries():
        kind = next((name for mark, name in _KINDS.items() if mark in command), None)
        if kind is not None and (memory := _memory(process.pid)) is not None:
            yield Cost(kind, process.cpu_us / 1e6, *memory)


def _memory(pid: int) -> tuple[int, int] | None:
    """Resident and private bytes of a process."""
    with suppress(OSError, ValueError):
        sizes: Counter[str] = Counter()
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, size, *_ = line.split()
            sizes[name] = int(size) << 10
        return sizes["Rss:"], sizes["Private_Clean:"] + sizes["Private_Dirty:"]
    return None


def imported(module: str) -> Mapping[str, float]:
    """Seconds that importing a module takes, by library; the largest first."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    timed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found: Counter[str] = Counter()
    for microseconds, name in _IMPORT.findall(timed):
        found[name.partition(".")[0]] += int(microseconds)
    return {library: microseconds / 1e6 for library, microseconds in found.most_common()}


@contextmanager
def _cluster() -> Iterator[str]:
    """The address of a Ray cluster of one node that runs within the block."""
    from deploy.start_raylets import raylets  # beside the package, in a checkout

    with raylets(1) as cluster:
        yield cluster.address


def run(query: str, parallelism: int, events: int, repeat: int) -> None:
    """Measures and prints."""
    with TemporaryDirectory(prefix="clonos-start-") as name:
        folder = Path(name)
        job = folder / "start_job.py"
        job.write_text(_JOB.format(query=query, events=events))
        ways: dict[str, list[Start]] = {}
        shared: dict[str, object] = {"parallelism": parallelism}
        ways["its own Ray"] = [started(job, folder, shared) for _ in range(repeat)]
        with _cluster() as address:
            ways["a Ray that runs"] = [started(job, folder, {**shared, "address": address}) for _ in range(repeat)]
        ways["one process"] = [started(job, folder, {**shared, "runtime": "local"}) for _ in range(repeat)]
    _show_parts(
        f"Start of {query} at parallelism {parallelism}: seconds, median of {repeat} (CPU of the command)", ways
    )
    for way in ("its own Ray", "one process"):
        _show_costs(f"Processes at the first result, {way}: each, median", ways[way])
    modules = ("clonos_py.runtime.ray.process_actor", "clonos_py.runtime.ray.run", "clonos_py.cli.run")
    show(
        "Imports, seconds by library",
        ("module", "all", "the largest"),
        ((module, f"{sum(found.values()):.2f}", _largest(found)) for module in modules for found in [imported(module)]),
    )


def _show_parts(title: str, ways: Mapping[str, Sequence[Start]]) -> None:
    rows = []
    for part in dict.fromkeys(_PARTS.values()):
        cells = []
        for starts in ways.values():
            taken = [start.parts[part] for start in starts if part in start.parts]
            medians = [statistics.median(values) for values in zip(*taken, strict=True)]
            cells.append(f"{medians[0]:.2f} ({medians[1]:.2f})" if medians else "")
        rows.append((part, *cells))
        if part == "first result":
            firsts = (statistics.median(start.first_result_s for start in starts) for starts in ways.values())
            rows.append(("= from the command to the first result", *(f"{seconds:.2f}" for seconds in firsts)))
    show(title, ("part", *ways), rows)


def _show_costs(title: str, starts: Sequence[Start]) -> None:
    by_kind: defaultdict[str, list[Cost]] = defaultdict(list)
    for start in starts:
        for cost in start.costs:
            by_kind[cost.kind].append(cost)
    rows = (
        (
            kind,
            f"{len(costs) / len(starts):.0f}",
            f"{statistics.median(cost.cpu_s for cost in costs):.2f}",
            f"{statistics.median(cost.resident_bytes for cost in costs) / 1e6:.0f}",
            f"{statistics.median(cost.private_bytes for cost in costs) / 1e6:.0f}",
        )
        for kind, costs in sorted(by_kind.items(), key=lambda item: -sum(cost.cpu_s for cost in item[1]))
    )
    show(title, ("process", "how many", "CPU s", "resident MB", "of it private"), rows)


def _largest(found: Mapping[str, float]) -> str:
    return ", ".join(f"{library} {seconds:.2f}" for library, seconds in list(found.items())[:_LIBRARIES_SHOWN])


command = click.Command(
    "start",
    callback=run,
    params=[
        click.Option(
            ["--query"], type=click.Choice(QUERIES), default="q8", show_default=True, help="The query that starts."
        ),
        click.Option(["--parallelism"], type=click.IntRange(1), default=2, show_default=True),
        click.Option(["--events"], type=click.IntRange(1), default=200_000, show_default=True),
        click.Option(["--repeat"], type=click.IntRange(1), default=3, show_default=True, help="Starts of each kind."),
    ],
    help="The parts of a start, from the command to the first result, and what each process costs.",
)
