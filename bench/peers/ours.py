"""Runs queries on this engine: full sharing depth, a standby for each task, the same files as the other engines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Terms
from clonos_py.bench.peers.rates import Rate, steady
from clonos_py.cli.options import resolved
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import QUERIES, build, files_of
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.report import Recorder

_WRITING = ("q10",)
"""Queries that are about writing files."""


@dataclass(frozen=True)
class Clonos:
    """This engine, on Ray."""

    name: str = "clonos"
    queries: tuple[str, ...] = QUERIES

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        """Does nothing: this engine is installed."""

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        from clonos_py.runtime.launch import run_job

        fixed = {"parallelism": terms.parallelism, "sharing_depth": "full", "guarantee": "exactly-once"}
        settings = resolved({**fixed, "checkpoint_interval": f"{terms.checkpoint_s}s"}, {})
        recorder = Recorder()
        with tempfile.TemporaryDirectory(prefix="clonos-peers-") as folder:
            sink = files_of(query, folder) if query in _WRITING else BlackholeSink()
            plan = run_job(build(query, RecordedEvents(str(dataset.folder)), sink), settings, recorder).plan
        samples = recorder.samples(vertex.name for vertex in plan.vertices if vertex.source is not None)
        return steady(samples, terms.warm_up_s, len(recorder.status.checkpoints))
