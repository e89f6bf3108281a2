"""Measures native kernels beside their forms in NumPy and Arrow, with the results of both compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
import pyarrow as pa

from clonos_py.cli.tables import show
from clonos_py.columns.distinct import first_rows
from clonos_py.columns.first_in_groups import first_in_groups
from clonos_py.columns.gathering import gathered
from clonos_py.columns.grouping import group
from clonos_py.columns.hash_index import new_index
from clonos_py.columns.kernels.library import missing, without_library
from clonos_py.columns.keys import hash_array, mix
from clonos_py.columns.ordering import order_by, stable_order
from clonos_py.columns.views import Ints
from clonos_py.model.errors import ClonosError

_ROWS = 65_536
_CHUNKS = 8
_INDEX_ROWS = 10_000_000

Work = Callable[[], Any]


def works(random: np.random.Generator) -> dict[str, Work]:
    """By name: work over one batch."""
    narrow, few = random.integers(0, _ROWS, _ROWS), random.integers(0, 100, _ROWS)
    wide = random.integers(0, 1 << 60, 20_000)[random.integers(0, 20_000, _ROWS)]
    times = np.sort(random.integers(0, 3_000_000, _ROWS)) + random.integers(0, 2_000, _ROWS)
    urls: Any = pa.array([f"https://example.com/{number}/item.htm?query=1" for number in wide.tolist()])
    chunks = [pa.record_batch({"id": wide, "time": times, "url": urls, "key": narrow}) for _ in range(_CHUNKS)]
    starts = np.arange(_CHUNKS + 1) * _ROWS
    numbers = random.integers(0, starts[-1], _ROWS)
    words = wide.view(np.uint64)
    return {
        "number ids of a narrow range": lambda: group([narrow], _ROWS),
        "number ids of a wide range": lambda: group([wide], _ROWS),
        "number pairs of ids": lambda: group([narrow, few], _ROWS),
        "order by time": lambda: [stable_order(times)],
        "order by group and time": lambda: [order_by([narrow, times])],
        "hash integers": lambda: [mix(words.copy())],
        "hash texts of 45 bytes": lambda: [hash_array(urls)],
        "first ten of groups": lambda: [first_in_groups(group([narrow // 16], _ROWS), [words.view(np.int64)], 10)],
        "distinct values of groups": lambda: first_rows(narrow, _ROWS, pa.array(wide)),
        "rows of 8 chunks": lambda: [gathered(chunks, starts, numbers)],
    }


def rows(turns: int) -> Iterator[tuple[str, ...]]:
    """One line for each kernel. Raises ClonosError if there are none, or if results differ."""
    if (why := missing()) is not None:
        raise ClonosError(why)
    for name, work in works(np.random.default_rng(1)).items():
        native, numpy = [], []
        for _ in range(turns):
            (first, seconds), (second, compared) = timed(work), timed_without(work)
            if not all(_equal(one, other) for one, other in zip(first, second, strict=True)):
                raise ClonosError(f"{name}: the results differ")
            native.append(seconds)
            numpy.append(compared)
        yield _line(name, _ROWS, statistics.median(numpy), statistics.median(native))
    keys = mix(np.random.default_rng(2).integers(0, 2 * _INDEX_ROWS, _INDEX_ROWS).astype(np.uint64))
    yield _line("look up and append 10 million rows", _INDEX_ROWS, timed_without(lambda: _indexed(keys))[1],
                timed(lambda: _indexed(keys))[1])  # fmt: skip


def timed(work: Work) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began


def timed_without(work: Work) -> tuple[Any, float]:
    with without_library():
        return timed(work)


def _equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)


def _indexed(keys: Any) -> Ints:
    index = new_index()
    for start in range(0, len(keys), _ROWS):
        index.probe(keys[start : start + _ROWS])
        index.append(keys[start : start + _ROWS])
    return index.probe(keys[:_ROWS])[1]


def _line(name: str, count: int, numpy: float, native: float) -> tuple[str, ...]:
    return name, f"{count / numpy / 1e6:.1f}", f"{count / native / 1e6:.1f}", f"{numpy / native:.1f}"


def run(turns: int) -> None:
    """Measures and prints."""
    headings = ("kernel", "NumPy or Arrow, M rows/s", "native, M rows/s", "ratio")
    show(f"Kernels over batches of {_ROWS:,} rows, medians of {turns}", headings, rows(turns))


command = click.Command(
    "kernels",
    callback=run,
    params=[click.Option(["--turns"], type=int, default=15, show_default=True, help="How often to measure each.")],
    help="Native kernels beside their forms in NumPy and Arrow.",
)
