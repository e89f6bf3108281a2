"""Scenarios in the order of their cost: what any of many seeds may show is looked for in small jobs first."""

from __future__ import annotations

from collections.abc import Iterable

from clonos_py.runtime.sim.generator import Range, Scenario, generate


def small_first(seeds: Iterable[int], range_: Range = Range()) -> list[Scenario]:  # noqa: B008 - frozen
    """The scenarios of these seeds; a run takes about as long as its tasks have rows to pass on."""
    return sorted((generate(seed, range_) for seed in seeds), key=_rows_passed)


def small_seeds(count: int, range_: Range = Range()) -> list[int]:  # noqa: B008 - frozen
    """The seeds of the smallest jobs, out of four times as many."""
    return [scenario.seed for scenario in small_first(range(4 * count), range_)[:count]]


def _rows_passed(scenario: Scenario) -> int:
    topology = scenario.topology
    return topology.tasks * sum(topology.rows_of.values())
