"""Runs many seeds, sums up their results, and reports on one that failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from clonos_py.runtime.sim.generator import FAMILY, Range
from clonos_py.runtime.sim.scenario import ScenarioResult, run_seed
from clonos_py.runtime.sim.shrinking import shrink

_LINES_MAX = 60


@dataclass
class Tally:
    """The results of several seeds. ``failing`` lists failed seeds with their problems; the other fields are sums."""

    seeds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    rollbacks: int = 0
    restarts: int = 0
    actions: int = 0
    failing: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.faults.update(other.faults)
        self.rollbacks += other.rollbacks
        self.restarts += other.restarts
        self.actions += other.actions
        self.failing += other.failing

    def __str__(self) -> str:
        faults = ", ".join(f"{count:,} x {name}" for name, count in self.faults.most_common())
        return f"{faults or 'no faults'}; {self.rollbacks:,} rollbacks, {self.restarts:,} restarts"


def run_seeds(start: int, count: int, range_: Range) -> Tally:
    """Runs ``count`` seeds from ``start`` on."""
    tally = Tally()
    for seed in range(start, start + count):
        result = run_seed(seed, range_)
        faults = Counter({FAMILY[kind]: 0 for kind in result.faults})
        for kind, done in result.faults.items():
            faults[FAMILY[kind]] += done
        failing = [(seed, "; ".join(result.problems))] if result.problems else []
        tally.add(Tally(1, +faults, result.rollbacks, result.restarts, result.actions, failing))
    return tally


def explain(seed: int, range_: Range) -> list[str]:
    """The report on a failing seed, for the smallest scenario found that still fails. Empty if it does not fail."""
    failed = run_seed(seed, range_)
    return _report(shrink(failed)) if failed.problems else []


def _report(result: ScenarioResult) -> list[str]:
    scenario = result.scenario
    topology, faults = scenario.topology, scenario.faults
    story = result.story
    if len(story) > _LINES_MAX:
        story = [f"({len(story) - _LINES_MAX} lines before)", *story[-_LINES_MAX:]]
    return [
        f"still fails with {topology.tasks} tasks and {len(faults)} faults: {'; '.join(result.problems)}",
        *(f"  {line}" for line in topology.lines()),
        *(f"  {line}" for line in story),
    ]
