"""The pages of a buffer that a sampled checksum covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_PAGE_BYTES, _STRIDE_BYTES = 4_096, 8 * 4_096
"""A sample has the first page of every eight, and the end that fills no eight pages."""
LARGE_BYTES = 2 * _STRIDE_BYTES
"""A smaller buffer is its own sample."""


def sample(content: Any) -> Iterator[Any]:
    """The sampled bytes in their order; all bytes of a buffer that is not large."""
    view = memoryview(content)
    whole = view.nbytes // _STRIDE_BYTES * _STRIDE_BYTES if view.nbytes >= LARGE_BYTES else 0
    if whole:
        yield np.frombuffer(view[:whole], np.uint8).reshape(-1, _STRIDE_BYTES)[:, :_PAGE_BYTES].tobytes()
    yield view[whole:]
