"""Parameters of which a run of the tests takes some, and a thorough one all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def often(values: Iterable[Any], always: Collection[Any]) -> list[Any]:
    """Those that are not among ``always`` are marked as thorough."""
    return [pytest.param(value, marks=[pytest.mark.thorough] * (value not in always)) for value in values]
