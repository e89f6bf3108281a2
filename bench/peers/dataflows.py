"""Runs queries on Bytewax: one process with one worker for each parallel task.

Workers of the same process would share the interpreter lock. Snapshots are written at the end of every epoch, and an
epoch is as long as the checkpoint interval.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clonos_py.bench.peers import queries
from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Terms
from clonos_py.bench.peers.environment import Environment
from clonos_py.bench.peers.rates import Rate, steady
from clonos_py.bench.ports import free_ports
from clonos_py.evaluation.metrics import RateSample
from clonos_py.model.errors import SettingError

_JOB = Path(__file__).parent / "bytewax_job.py"


@dataclass(frozen=True)
class Bytewax:
    """The Bytewax engine: Python dataflows on a Rust runtime."""

    environment: Environment
    name: str = "Bytewax"
    queries: tuple[str, ...] = queries.BYTEWAX_QUERIES

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        self.environment.make(on_progress)

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        with tempfile.TemporaryDirectory(prefix="clonos-bytewax-") as name:
            self.flow(query, dataset, terms, Path(name), results=False)
            reports = [json.loads(line) for path in Path(name).glob("[0-9]*.jsonl") for line in path.open()]
        return steady(list(merged(reports, query, dataset)), terms.warm_up_s)

    def flow(self, query: str, dataset: Dataset, terms: Terms, out: Path, results: bool) -> None:
        """Runs a query. Its progress reports and results are written to ``out``. Raises SettingError if it fails."""
        recovery = out / "recovery"
        recovery.mkdir()
        make = [str(self.environment.python), "-m", "bytewax.recovery", str(recovery), str(terms.parallelism)]
        subprocess.run(make, check=True, capture_output=True)
        spec = {
            "query": query,
            "events": str(dataset.folder.absolute()),
            "addresses": [f"localhost:{port}" for port in free_ports(terms.parallelism)],
            "checkpoint_s": terms.checkpoint_s,
            "seconds": terms.warm_up_s + terms.seconds,
            "late_s": 3_600 if results else 0,
            "recovery": str(recovery),
            "out": str(out),
            "results": results,
        }
        path = out / "spec.json"
        path.write_text(json.dumps(spec))
        command = [str(self.environment.python), str(_JOB), str(path)]
        processes = [
            subprocess.Popen([*command, str(number)], stderr=(out / f"{number}.err").open("w"))
            for number in range(terms.parallelism)
        ]
        try:
            failed = [number for number, process in enumerate(processes) if process.wait()]
        finally:
            for process in processes:
                process.kill()
        if failed:
            errors = (out / f"{failed[0]}.err").read_text().strip().splitlines()[-1:] or ["no error was printed"]
            raise SettingError(f"Bytewax could not run {query}: {errors[0]}")


def merged(reports: Iterable[tuple[int, str, int]], query: str, dataset: Dataset) -> Iterator[RateSample]:
    """A sample of the events that all processes together have read, for each progress report of a process. The rows
    read of a file only grow."""
    latest: dict[str, int] = {}
    for at_us, file, rows in sorted(map(_typed, reports)):
        latest[file] = rows
        by_kind = dict.fromkeys(queries.kinds_read(query), 0)
        for name, count in latest.items():
            by_kind[name.split("/")[0]] += count
        yield RateSample(at_us, dataset.events_of(by_kind))


def _typed(line: Any) -> tuple[int, str, int]:
    at_us, file, rows = line
    return int(at_us), str(file), int(rows)
