"""Seeds in pieces of a size that suits several workers: the first of them for every run, the rest where time allows."""

from __future__ import annotations

from typing import Any

import pytest


def chunks(seeds: int, size: int, always: int) -> list[Any]:
    """Parameters: ranges of ``size`` seeds, those beyond the first ``always`` seeds marked as thorough."""
    starts = range(0, seeds, size)
    return [
        pytest.param(range(start, start + size), id=str(start), marks=[pytest.mark.thorough] * (start >= always))
        for start in starts
    ]
