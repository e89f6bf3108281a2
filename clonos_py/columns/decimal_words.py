"""128-bit decimals as pairs of 64-bit words, the low word first: their unscaled values.

Most values fit into the low word; then computing with the low words is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Bools, Column, Ints, raw


def words_of(column: Column) -> Ints:
    """Two words for each decimal. The words of a null are undefined."""
    found: Ints = raw(column, np.int64, 2).reshape(-1, 2)
    return found


def short_values(words: Ints) -> Ints | None:
    """The low words, if they hold all values."""
    low: Ints = words[:, 0]
    return low if (words[:, 1] == low >> 63).all() else None


def decimals_of(low: Ints, kind: pa.DataType, high: Ints | None = None, missing: Bools | None = None) -> Any:
    """Decimals of type ``kind``. ``high``: None if the low words suffice. ``missing``: which values are null."""
    words = np.stack([low, low >> 63 if high is None else high], axis=1)
    known = None if missing is None else pa.array(~missing).buffers()[1]
    return pa.Array.from_buffers(kind, len(low), [known, pa.py_buffer(words.data)])
