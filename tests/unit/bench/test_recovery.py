"""When the benchmark of recoveries kills."""

from __future__ import annotations

from itertools import pairwise

import pytest

from clonos_py.bench.recovery import kill_times_s


@pytest.mark.parametrize(("kills", "interval_s"), [(10, 60.0), (10, 5.0), (4, 4.0), (3, 0.5), (1, 5.0)])
def test_the_kills_of_a_run_are_spread_evenly_over_the_checkpoint_interval(kills: int, interval_s: float) -> None:
    times_s = kill_times_s(kills, interval_s)
    assert times_s[0] > 2 * interval_s
    assert sorted(at % interval_s for at in times_s) == pytest.approx(
        [(kill + 0.5) / kills * interval_s for kill in range(kills)]
    )
    assert all(after - before >= 4.0 for before, after in pairwise(times_s)), "the job recovers in between"


def test_a_long_interval_has_all_kills_of_a_run() -> None:
    assert kill_times_s(10, 60.0) == pytest.approx([123.0 + 6 * kill for kill in range(10)])
