"""Runs queries on Flink SQL, and on PyFlink with Python functions, in a session cluster on this machine.

The settings are those of the official Nexmark benchmark (mini-batches, split distinct aggregates), and further ones
that make Flink fast if all state fits into memory: object reuse, G1, state on the heap. Queries whose state grows with
the stream keep it in RocksDB with incremental checkpoints, as the official benchmark does for all queries: on the heap
every checkpoint would write all state.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clonos_py.bench.peers import queries
from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Terms
from clonos_py.bench.peers.environment import Environment
from clonos_py.bench.peers.flink_cluster import FlinkCluster, cluster
from clonos_py.bench.peers.rates import Rate, steady
from clonos_py.evaluation.metrics import RateSample
from clonos_py.model.errors import SettingError

LATE = "'0.001' SECOND"
"""The delay of watermarks. In Flink an event at the watermark is late; 1 ms keeps events of a millisecond together."""
_JOB = Path(__file__).parent / "flink_job.py"
_WORKERS = "_python_worker_execution_mode"
"""Selects worker processes for Python functions. By default PyFlink may call them in the process that has submitted the
job, and that process ends at once."""
_POLL_S = 0.5
_ENDED = ("FINISHED", "CANCELED", "FAILED")
_COUNTER = re.compile(r"Source__(\w+?)(?:\[\d+\]|_\d+_)?\.numRecords(?:In|Out)")


def table_settings(dataset: Dataset, parallelism: int) -> dict[str, str]:
    """Settings of queries, which hold for every kind of execution."""
    return {
        "parallelism.default": str(parallelism),
        "pipeline.global-job-parameters": f"side_input:{dataset.side_input.absolute()}",
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.distinct-agg.split.enabled": "true",
    }


def cluster_settings(query: str, terms: Terms, folder: Path) -> dict[str, str]:
    """Settings of processes, state and checkpoints."""
    on_heap = not queries.keeps_everything(query)
    return {
        "env.java.opts.taskmanager": "-XX:+UseG1GC",
        "execution.checkpointing.dir": (folder / "checkpoints").absolute().as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{terms.checkpoint_s} s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "io.tmp.dirs": str(folder / "tmp"),
        "jobmanager.bind-host": "localhost",
        "jobmanager.memory.process.size": "1600m",
        "jobmanager.rpc.address": "localhost",
        "metrics.fetcher.update-interval": "500 ms",
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
        "restart-strategy.type": "none",
        "state.backend.type": "hashmap" if on_heap else "rocksdb",
        "taskmanager.bind-host": "localhost",
        "taskmanager.host": "localhost",
        "taskmanager.memory.managed.fraction": "0.2" if on_heap else "0.5",
        "taskmanager.memory.process.size": "8g",
        "taskmanager.numberOfTaskSlots": str(terms.parallelism),
    }


@dataclass(frozen=True)
class Flink:
    """Flink SQL. With ``python_functions`` the scalar functions of a query are Python functions (PyFlink)."""

    environment: Environment
    python_functions: bool = False

    @property
    def name(self) -> str:
        return "PyFlink functions" if self.python_functions else "Flink SQL"

    @property
    def queries(self) -> tuple[str, ...]:
        return queries.PYTHON_QUERIES if self.python_functions else queries.QUERIES

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        self.environment.make(on_progress)

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        with tempfile.TemporaryDirectory(prefix="clonos-flink-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            settings = {**cluster_settings(query, terms, folder), "python.executable": str(self.environment.python)}
            with cluster(self.environment, folder, settings) as running:
                job = self._submitted(query, dataset, terms, running, folder)
                samples = list(read_samples(running, job, dataset, query, terms))
                checkpoints = running.get(f"/jobs/{job}/checkpoints")["counts"]["completed"]
                if running.get(f"/jobs/{job}")["state"] not in _ENDED:
                    running.cancel(job)
            return steady(samples, terms.warm_up_s, checkpoints)

    def collect(self, names: tuple[str, ...], dataset: Dataset, late: str, parallelism: int, out: Path) -> None:
        """Runs queries to their end and writes the result of each to ``out/NAME.parquet``."""
        spec = {
            "config": {**table_settings(dataset, parallelism), "python.executable": str(self.environment.python)},
            "statements": queries.statements(dataset, late),
            "python_functions": self.python_functions,
            "collect": {name: queries.select(name, self.python_functions) for name in names},
            "out": str(out),
        }
        self._run_spec(spec, out)

    def _submitted(self, query: str, dataset: Dataset, terms: Terms, running: FlinkCluster, folder: Path) -> str:
        remote = {
            "execution.attached": "false",
            "execution.target": "remote",
            "python.executable": str(self.environment.python),
            "rest.address": "localhost",
            "rest.port": str(running.rest_port),
        }
        spec = {
            "config": {**table_settings(dataset, terms.parallelism), **remote},
            "statements": queries.statements(dataset, LATE),
            "python_functions": self.python_functions,
            "query": queries.select(query, self.python_functions),
            "sink": queries.sink(query, folder),
        }
        return self._run_spec(spec, folder).split()[-1]

    def _run_spec(self, spec: dict[str, Any], folder: Path) -> str:
        path = folder / "spec.json"
        path.write_text(json.dumps(spec))
        command = [str(self.environment.python), str(_JOB), str(path)]
        environment = {**os.environ, _WORKERS: "process"}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if ended.returncode:
            errors = [line for line in ended.stderr.splitlines() if "Exception" in line or "Error" in line]
            at = ended.stdout.split()[-1:]
            raise SettingError(f"Flink refused the job: {' / '.join([*at, *errors[-2:]]) or 'it gave no reason'}")
        return ended.stdout


def read_samples(running: FlinkCluster, job: str, dataset: Dataset, query: str, terms: Terms) -> Iterator[RateSample]:
    """Samples of the events that the sources of a job have read, until the job ends or its measurement is complete."""
    began: float | None = None
    while True:
        found = running.get(f"/jobs/{job}")
        rows = source_rows(running, job, found["vertices"], queries.kinds_read(query))
        now = time.monotonic()
        yield RateSample(int(now * 1e6), dataset.events_of(rows))
        if began is None and any(rows.values()):
            began = now
        if found["state"] == "FAILED":
            raise SettingError(f"Flink could not run {query}: {root_cause(running, job)}")
        if found["state"] in _ENDED or (began is not None and terms.is_complete(now - began)):
            return
        time.sleep(_POLL_S)


def source_rows(
    running: FlinkCluster, job: str, vertices: list[dict[str, Any]], kinds: tuple[str, ...]
) -> dict[str, int]:
    """How many rows of each kind the sources have read."""
    found = dict.fromkeys(kinds, 0)
    for vertex in vertices:
        path = f"/jobs/{job}/vertices/{vertex['id']}/subtasks/metrics"
        by_metric = {metric["id"]: counted_kind(metric["id"], kinds) for metric in running.get(path)}
        names = ",".join(quote(metric) for metric, kind in by_metric.items() if kind)
        for metric in running.get(f"{path}?get={names}&agg=sum") if names else ():
            kind = by_metric[metric["id"]]
            if kind:
                found[kind] = max(found[kind], int(metric["sum"]))
    return found


def root_cause(running: FlinkCluster, job: str) -> str:
    """The message of the innermost exception that made a job fail."""
    found = running.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    causes = [line for line in found[0]["stacktrace"].splitlines() if not line.startswith("\t")] if found else []
    return causes[-1] if causes else "Flink gave no reason"


def counted_kind(metric: str, kinds: tuple[str, ...]) -> str | None:
    """The kind of events of the source operator that a metric belongs to, if it counts rows read or emitted."""
    found = _COUNTER.fullmatch(metric)
    return found[1] if found and found[1] in kinds else None
