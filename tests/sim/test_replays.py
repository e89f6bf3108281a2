"""A replay of what generated jobs did equals the run, whatever failed meanwhile (F2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from clonos_py.runtime.sim.generator import CAUSAL, ROLLBACK, Range
from clonos_py.settings.protocols import PROTOCOLS
from tests.often import often
from tests.replays import replays_of
from tests.sim.small_first import small_seeds

SIZE = 4
_KINDS = [
    (protocol, recovery)
    for protocol in PROTOCOLS
    for recovery in ((CAUSAL, ROLLBACK) if protocol.rolls_back else (CAUSAL,))
]


def _replays_equal(seeds: Iterable[int], range_: Range, patch: pytest.MonkeyPatch) -> None:
    snapshots = 0
    for seed in seeds:
        found = replays_of(seed, range_, patch)
        assert not found.problems, f"seed {seed}: {found.problems[0]}"
        snapshots += found.snapshots
    assert snapshots > 10 * SIZE, "too few snapshots were compared: the test proves little"


@pytest.mark.parametrize(("protocol", "recovery"), _KINDS, ids=str)
def test_replays_of_small_runs_equal_them(protocol: Any, recovery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    range_ = Range(protocol=protocol, recovery=recovery)
    _replays_equal(small_seeds(SIZE, range_), range_, monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(start, start + SIZE) for start in range(0, 240, SIZE)], ids=lambda s: s.start)
@pytest.mark.parametrize(("protocol", "recovery"), _KINDS, ids=str)
def test_replays_equal_the_run(seeds: range, protocol: Any, recovery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _replays_equal(seeds, Range(protocol=protocol, recovery=recovery), monkeypatch)


@pytest.mark.parametrize("seed", [348, 708])
def test_replays_of_single_runs_equal_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """348: the clock is set back. 708: the log of a run without a checkpoint is in the output of a causal sink."""
    assert replays_of(seed, Range(protocol=None), monkeypatch).problems == []


_LOOPS = Range(protocol=None, cycles=True)


@pytest.mark.parametrize("seed", often(range(120), small_seeds(3, _LOOPS)))
def test_replays_of_jobs_with_loops_equal_the_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = replays_of(seed, _LOOPS, monkeypatch)
    assert not found.problems, f"seed {seed}: {found.problems[0]}"
