"""Checks that memory stays bounded while retained frames are spilled to disk, and measures what spilling costs.

The job passes rows from task to task. Its rate is chosen so that the retained bytes grow at half of the write bandwidth
of the disk, which is measured first. Checkpoints are far apart, and the in-flight budget of each task is small. The
memory of every task process is read from the system four times a second. It is bounded if it stops growing once the
first frames are on disk: the peak of the second half of the run is compared with that of the first.

The reference is a run with all frames in memory: its budget is practically unlimited, and its checkpoints are frequent
enough that the frames fit.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from clonos_py.bench.resident import resident_bytes
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.observe.units import bytes_text
from clonos_py.runtime.spill import FileShelf

_QUERY = "rebalanced"
_PROBE_EVENTS = 5_000_000
_FRAME_BYTES = 4 << 20
_SAMPLE_S = 0.25
_MEMORY_SHARE = 0.25
"""The share of the free memory that retained frames may take in the run that keeps them in memory."""
_SPILLING: dict[str, Any] = {"spill": "spill-threshold", "in_flight_budget": "64MiB", "spill_threshold": "32MiB"}


def disk_bytes_per_s(folder: Path, size: int) -> float:
    """The rate at which frames are written to files in ``folder``, including the fsync."""
    frame = pa.py_buffer(os.urandom(_FRAME_BYTES))
    shelf = FileShelf(folder)
    began = time.perf_counter()
    places = [shelf.write(frame) for _ in range(max(1, size // _FRAME_BYTES))]
    for descriptor in {place.file.descriptor for place in places}:
        os.fsync(descriptor)
    seconds = time.perf_counter() - began
    shelf.close()
    return len(places) * _FRAME_BYTES / seconds


class MemorySampler:
    """Samples the memory of all task processes that start on this machine during the block, in a thread."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, dict[int, int]]] = []
        self._others = frozenset(dict(resident_bytes()))
        """Processes of an earlier run, which take a while to release their memory. They are left out."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            found = {pid: size for pid, size in resident_bytes() if pid not in self._others}
            self._samples.append((time.monotonic(), found))

    def peaks(self) -> tuple[int, int]:
        """The peak bytes of the largest process, in the first and in the second half of the time with processes."""
        running = [(at, found) for at, found in self._samples if found]
        if not running:
            return 0, 0
        middle = (running[0][0] + running[-1][0]) / 2
        halves = [[f for at, f in running if at < middle], [f for at, f in running if at >= middle]]
        first, second = (max((max(found.values()) for found in half), default=0) for half in halves)
        return first, second


def _free_bytes() -> int:
    return int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10


def rows(seconds: float, disk_bytes: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each place of retained frames: memory, then disk."""
    base: dict[str, Any] = {"parallelism": 2, "standbys": 0, "checkpoint_interval": "60s"}
    with tempfile.TemporaryDirectory(prefix="clonos-disk-") as folder:
        bandwidth = disk_bytes_per_s(Path(folder), disk_bytes)
    probe = run_query(QueryRun(_QUERY, _PROBE_EVENTS), resolved(base, given))
    bytes_per_event = probe["bytes"]["data"] / _PROBE_EVENTS
    target = bandwidth / 2 / bytes_per_event
    pace = min(target, probe["throughput"]["steady_events_per_s"])
    click.echo(
        f"the disk writes {bytes_text(int(bandwidth))}/s; at {bytes_per_event:.0f} bytes per event, {target:,.0f} "
        f"events/s need half of that{'' if pace == target else f'; the job reaches {pace:,.0f} events/s'}"
    )
    fits_s = max(1.0, min(60.0, _free_bytes() * _MEMORY_SHARE / (pace * bytes_per_event)))
    in_memory = {"in_flight_budget": "1TiB", "checkpoint_interval": f"{fits_s:.1f}s"}
    reference: float | None = None
    for name, changed in (("in memory, no budget", in_memory), ("spill-threshold, 64 MiB per task", _SPILLING)):
        with MemorySampler() as watch:
            made = run_query(QueryRun(_QUERY, int(pace * seconds), rate=pace), resolved(base, {**given, **changed}))
        achieved = made["throughput"]["steady_events_per_s"]
        reference = reference or achieved
        first, second = watch.peaks()
        yield (
            name,
            f"{achieved:,.0f}",
            f"{achieved / reference:.3f}",
            f"{made['cpu_us_per_event'] or 0:.4f}",
            bytes_text(first),
            bytes_text(second),
            str(made["checkpoints"]["completed"]),
        )


def run(seconds: float, disk_mib: int, **given: Any) -> None:
    """Measures and prints."""
    from clonos_py.runtime.ray.cluster import connected

    headings = ("frames", "events/s", "share", "us/event", "peak, first half", "peak, second half", "checkpoints")
    with connected(None):  # one Ray for all runs
        show(f"Memory of the largest task, {_QUERY}", headings, rows(seconds, disk_mib << 20, given))


command = click.Command(
    "memory",
    callback=run,
    params=[
        click.Option(["--seconds"], type=float, default=180.0, show_default=True, help="How long each run reads."),
        click.Option(
            ["--disk-mib"],
            type=click.IntRange(4),
            default=4096,
            show_default=True,
            help="MiB to write when the disk is measured.",
        ),
        *setting_options("parallelism", "checkpoint_interval"),
    ],
    help="Resident memory and throughput with retained frames on disk, against all of them in memory.",
)
