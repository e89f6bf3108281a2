"""Loads the library of native kernels if there is one that fits this machine and these sources.

Without a library everything works in NumPy, with the same results. ``missing`` says why there is none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clonos_py.columns.kernels.sources import FOLDER, LIBRARY, version

SWITCH = "CLONOS_KERNELS"
"""An environment variable: with the value off no library is loaded."""
MAX_ROWS = 2**32 - 2
"""Kernels number rows with 32 bits, of which two values have another meaning."""

_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "clonos_index_new": (_POINTER, []),
    "clonos_index_free": (None, [_POINTER]),
    "clonos_index_append": (_COUNT, [_POINTER, _POINTER, _COUNT, _POINTER]),
    "clonos_index_probe": (_COUNT, [_POINTER, _POINTER, _COUNT, _POINTER, _POINTER, _POINTER, _COUNT]),
    "clonos_index_compact": (_COUNT, [_POINTER, _POINTER]),
    "clonos_index_drop_first": (_COUNT, [_POINTER, _COUNT]),
    "clonos_index_truncate": (_COUNT, [_POINTER, _COUNT]),
    "clonos_index_bytes": (_COUNT, [_POINTER]),
    "clonos_group": (_COUNT, [_POINTER, _POINTER, _COUNT, _COUNT, _COUNT, _POINTER, _POINTER]),
    "clonos_distinct": (_COUNT, [_POINTER, _POINTER, _POINTER, _COUNT, _COUNT, _POINTER, _POINTER]),
    "clonos_first": (_COUNT, [_POINTER, _COUNT, _COUNT, _POINTER, _COUNT, _COUNT, _POINTER]),
    "clonos_stable_order": (_COUNT, [_POINTER, _COUNT, _POINTER]),
    "clonos_mix": (None, [_POINTER, _COUNT]),
    "clonos_combine": (None, [_POINTER, _POINTER, _COUNT]),
    "clonos_places": (_COUNT, [_POINTER, _COUNT, _POINTER, _COUNT, _POINTER]),
    "clonos_gather_values": (_COUNT, [_POINTER, _POINTER, _COUNT, _POINTER, _COUNT, _POINTER]),
    "clonos_gather_bits": (_COUNT, [_POINTER, _POINTER, _POINTER, _COUNT, _POINTER]),
    "clonos_gather_bounds": (_COUNT, [_POINTER, _POINTER, _POINTER, _COUNT, _POINTER, _POINTER]),
    "clonos_gather_bytes": (None, [_POINTER, _POINTER, _POINTER, _COUNT, _POINTER, _POINTER]),
    "clonos_hash_bytes": (_COUNT, [_POINTER, _COUNT, _POINTER, _COUNT, _POINTER]),
}
"""By kernel: what it returns, and its arguments."""


class UnfitLibraryError(Exception):
    """The library cannot be used."""


@dataclass
class _Use:
    compared: bool = False
    """Whether NumPy does all work now."""


_USE = _Use()
_SHORT_ROWS = 65_536
"""A call over no more rows takes about a millisecond."""


class Library(NamedTuple):
    """The loaded library. The functions of ``short`` keep the interpreter lock while they run, those of ``long`` do
    not. A thread that has released the lock may wait for as long as Python lets another one run, which is longer than a
    call over one batch."""

    short: Any
    long: Any

    def of(self, rows: int) -> Any:
        """The functions for a call over so many rows."""
        return self.short if rows <= _SHORT_ROWS else self.long


def library() -> Library | None:
    """The library; None if there is none that fits."""
    return None if _USE.compared else _found()[0]


@contextmanager
def without_library() -> Iterator[None]:
    """Within the block NumPy does all work: for comparisons."""
    _USE.compared = True
    try:
        yield
    finally:
        _USE.compared = False


def missing() -> str | None:
    """Why there is no library, in one line, and what to do; None if there is one, or if it is switched off."""
    return _found()[1]


def pointer(values: npt.NDArray[Any] | None, dtype: npt.DTypeLike, count: int) -> int | None:
    """The address of an array for a kernel; None for None. Raises ValueError unless the array is a contiguous one of
    this type with at least ``count`` values: a kernel does not look at more than the address."""
    if values is None:
        return None
    if values.dtype != dtype or not values.flags.c_contiguous or values.ndim != 1 or len(values) < count:
        raise ValueError(
            f"a kernel takes {count} contiguous values of type {np.dtype(dtype)}, not {values.shape} of {values.dtype}"
        )
    address: int = values.__array_interface__["data"][0]
    return address


def check_rows(count: int) -> None:
    """Raises OverflowError for more rows than kernels can number."""
    if count > MAX_ROWS:
        raise OverflowError(f"{count} rows in one batch: kernels number at most {MAX_ROWS}")


def made(returned: int) -> int:
    """What a kernel returned. Raises MemoryError if it could not allocate."""
    if returned < 0:
        raise MemoryError("a native kernel needs more memory than there is")
    return returned


@cache
def _found() -> tuple[Library | None, str | None]:
    if os.environ.get(SWITCH) == "off":
        return None, None
    try:
        return load(FOLDER / LIBRARY), None
    except UnfitLibraryError as error:
        return None, f"there are no native kernels, so keyed state is slower, with the same results: {error}"


def load(path: Path) -> Library:
    """The library in a file. Raises UnfitLibraryError if there is none, or if it does not fit this machine or the
    sources beside this module."""
    if not path.exists():
        raise UnfitLibraryError(f"{path} does not exist: `make setup` builds it if there is a C compiler")
    try:
        found = Library(ctypes.PyDLL(str(path)), ctypes.CDLL(str(path)))
        found.long.clonos_kernels_version.restype = ctypes.c_uint64
        if found.long.clonos_kernels_version() != version():
            raise UnfitLibraryError(f"{path} was built of other sources: `make setup` builds it again")
        for functions in found:
            for name, (returned, arguments) in _SIGNATURES.items():
                function = getattr(functions, name)
                function.restype, function.argtypes = returned, arguments
    except (OSError, AttributeError) as error:
        raise UnfitLibraryError(f"{path} cannot be loaded: {error}") from error
    return found
