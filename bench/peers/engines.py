"""The interface of an engine in the comparison: its name, the queries that it supports, and a run of a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.rates import Rate


@dataclass(frozen=True)
class Terms:
    """The terms that are the same for all engines: tasks of each operator, checkpoint interval, and measured time.

    ``seconds``: the longest time that is measured after the warm-up. A run that still reads then is ended.
    """

    parallelism: int = 2
    checkpoint_s: int = 5
    warm_up_s: float = 10.0
    seconds: float = 40.0

    def is_complete(self, read_s: float) -> bool:
        """Whether the measurement of a run is complete after ``read_s`` seconds of reading."""
        return read_s >= self.warm_up_s + self.seconds


class Engine(Protocol):
    """An engine that runs queries over the files of a dataset."""

    @property
    def name(self) -> str: ...

    @property
    def queries(self) -> tuple[str, ...]: ...

    def prepare(self, on_progress: Callable[[str], None]) -> None:
        """Installs the engine if it is missing."""
        ...

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        """Runs a query once and returns its rate. Raises SettingError if the engine cannot run it."""
        ...
