"""Measures for how long ``clonos rescale`` pauses a detached run: a query at half of its maximum rate, on a cluster of
one node. The seconds are those that the command prints: from the request of the last checkpoint until all tasks run at
the new parallelism."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from clonos_py.cli.options import resolved
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.steady import measure
from clonos_py.model.errors import ClusterError

_JOB = """
from clonos_py import Job
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource

def job(query: str, rate: float) -> Job:
    return build(query, NexmarkSource(2**31 - 1, rate=rate), BlackholeSink())
"""
_PAUSE = re.compile(r"after a pause of (\d+\.\d) s")
_HALF = 2


def run(query: str, times: int, rate: int | None, between: tuple[int, int]) -> None:
    """Measures and prints."""
    calm = resolved({"parallelism": between[0]}, {})
    pace = rate or int(measure(query, 15, calm)["throughput"]["steady_events_per_s"] / _HALF)
    pauses: dict[int, list[float]] = {tasks: [] for tasks in between}
    for tasks, pause_s in _pauses(query, times, pace, between):
        pauses[tasks].append(pause_s)
    title = f"Rescaling, {query} at {pace:,} events/s, seconds of the pause"
    rows = [(str(t), str(len(p)), f"{statistics.median(p):.1f}", f"{max(p):.1f}") for t, p in pauses.items()]
    show(title, ("to parallelism", "times", "median", "worst"), rows)


def _pauses(query: str, times: int, pace: int, between: tuple[int, int]) -> list[tuple[int, float]]:
    """The pauses, each with the parallelism to which it led. Raises ClusterError if a command fails."""
    from deploy.start_raylets import raylets  # beside the package, in a checkout

    os.environ["RAY_AUTH_MODE"] = "token"
    first, other = between
    with TemporaryDirectory(prefix="clonos-rescale-") as folder, raylets(1) as cluster:
        (Path(folder) / "job.py").write_text(_JOB)
        where = ("--address", cluster.address)
        settings = ("--parallelism", str(first), "--checkpoints", f"{folder}/checkpoints", *where)
        _clonos("run", f"{folder}/job.py", "--query", query, "--rate", str(pace), "--detach", *settings)
        name = f"nexmark-{query}"
        found = []
        for number in range(2 * times):
            tasks = first if number % 2 else other
            printed = _clonos("rescale", name, "--parallelism", str(tasks), *where)
            match = _PAUSE.search(printed)
            assert match is not None, printed
            found.append((tasks, float(match[1])))
        _clonos("stop", name, *where)
    return found


def _clonos(*words: str) -> str:
    command = [sys.executable, "-m", "clonos_py.cli.main", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ClusterError(f"clonos {words[0]} has failed: {ended.stderr}")
    return ended.stdout


command = click.Command(
    "rescale",
    callback=run,
    params=[
        click.Option(["--query"], default="q8", show_default=True, help="The query."),
        click.Option(["--times"], type=click.IntRange(1), default=3, show_default=True, help="Changes to each."),
        click.Option(["--rate"], type=int, help="Events per second; half of the measured maximum without."),
        click.Option(
            ["--between"],
            type=(click.IntRange(1), click.IntRange(1)),
            default=(1, 2),
            show_default=True,
            help="The two parallelisms.",
        ),
    ],
    help="Seconds for which a run pauses that is rescaled.",
)
