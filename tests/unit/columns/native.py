"""Tests of a native kernel beside its form in NumPy."""

from __future__ import annotations

import pytest

from clonos_py.columns.kernels.library import Library, library, missing

needs_kernels = pytest.mark.skipif(library() is None, reason=missing() or "kernels are off")


def kernels() -> Library:
    """The library, which the tests with this mark have."""
    found = library()
    assert found is not None
    return found
