"""The limit of calls per second: never exceeded in any second, and never waited for longer than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.operators.rate_limit import RateLimit

RATES = st.one_of(st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.5, 2.5]))


@given(RATES, st.lists(st.integers(0, 700_000), max_size=60))
def test_calls_begin_as_early_as_the_rate_allows(rate: float, pauses: list[int]) -> None:
    limit, now_us, begun = RateLimit(rate), 0, list[int]()
    for pause_us in pauses:
        now_us += pause_us
        wait_us = limit.take(now_us)
        if wait_us:
            assert limit.take(now_us + wait_us - 1)
            now_us += wait_us
            limit = RateLimit(rate, limit.begun_us)
            assert limit.take(now_us) == 0
        begun.append(now_us)
    count = max(1, int(rate))
    for first, later in zip(begun, begun[count:], strict=False):
        assert later - first >= count * 1_000_000 / rate


def test_a_clock_that_is_set_back_does_not_block_calls() -> None:
    limit = RateLimit(1, [9_000_000])
    assert limit.take(5_000_000) == 0
    assert limit.take(5_000_000) == 1_000_000
