"""Conversion of NumPy values to plain Python values, which records and state hold."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain_scalar(value: np.generic) -> Any:
    """A NumPy scalar as a Python value: a ``datetime64`` as an Instant (microseconds since 1970-01-01 UTC), NaT as
    None. Raises ValueError for a time with fractions of a microsecond."""
    if not isinstance(value, np.datetime64):
        return value.item()
    if np.isnat(value):
        return None
    whole = value.astype("datetime64[us]")
    if whole != value:
        raise ValueError(f"{value} is finer than microseconds")
    return int(whole.astype(np.int64))


def plain_value(value: Any) -> Any:
    """A NumPy scalar or array as a plain value, for encoders without NumPy support. Raises TypeError for others."""
    if isinstance(value, np.generic):
        return plain_scalar(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind not in "mM" else [plain_scalar(item) for item in value]
    raise TypeError(f"{value!r:.200} ({type(value).__name__}) is no plain data")
