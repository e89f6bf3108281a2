"""A replay of what generated jobs did equals the run, whatever failed meanwhile (F2)."""

from __future__ import annotations

import pytest

from clonos_py.runtime.sim.generator import CAUSAL, ROLLBACK, Range
from clonos_py.settings.protocols import PROTOCOLS
from tests.chunks import chunks
from tests.often import often
from tests.replays import replays_of

SIZE = 4
QUICK = range(4, 8)
"""Small runs with many snapshots: the run of seed 0 takes five times as long as these together."""
_KINDS = [
    (protocol, recovery)
    for protocol in PROTOCOLS
    for recovery in ((CAUSAL, ROLLBACK) if protocol.rolls_back else (CAUSAL,))
]


@pytest.mark.parametrize(
    "seeds",
    often([range(start, start + SIZE) for start in range(0, 240, SIZE)], [QUICK]),
    ids=lambda seeds: seeds.start,
)
@pytest.mark.parametrize(("protocol", "recovery"), _KINDS, ids=str)
def test_replays_equal_the_run(seeds: range, protocol: object, recovery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    equal = 0
    for seed in seeds:
        range_ = Range(protocol=protocol, recovery=recovery)  # type: ignore[arg-type]
        found = replays_of(seed, range_, monkeypatch)
        assert not found.problems, f"seed {seed}: {found.problems[0]}"
        equal += found.snapshots
    assert equal > 10 * SIZE, "too few snapshots were compared: the test proves little"


@pytest.mark.parametrize("seed", [348, 708])
def test_replays_of_single_runs_equal_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """348: the clock is set back. 708: the log of a run without a checkpoint is in the output of a causal sink."""
    assert replays_of(seed, Range(protocol=None), monkeypatch).problems == []


@pytest.mark.parametrize("seeds", chunks(120, 1, always=1))
def test_replays_of_jobs_with_loops_equal_the_run(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        found = replays_of(seed, Range(protocol=None, cycles=True), monkeypatch)
        assert not found.problems, f"seed {seed}: {found.problems[0]}"
