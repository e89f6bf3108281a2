"""What every engine is to the comparison: a name, the queries it can do, and one run of a query over files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.rates import Rate


@dataclass(frozen=True)
class Terms:
    """What is the same for all: tasks of each operator, time between checkpoints, and what of a run is measured.

    ``seconds``: a run that has not read everything by then (after the warm-up) is ended.
    """

    parallelism: int = 2
    checkpoint_s: int = 5
    warm_up_s: float = 10.0
    seconds: float = 40.0

    def over(self, read_s: float) -> bool:
        """Whether a run that has been reading for so long has been measured."""
        return read_s >= self.warm_up_s + self.seconds


class Engine(Protocol):
    """Runs queries."""

    @property
    def name(self) -> str: ...

    @property
    def queries(self) -> tuple[str, ...]: ...

    def prepare(self, told: Callable[[str], None]) -> None:
        """Installs what is missing."""
        ...

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        """One run. Raises SettingError where the engine does not run it."""
        ...
