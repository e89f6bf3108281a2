"""Synthetic workloads, in which each row depends only on its number: keyed rows, and CheckMate's cyclic query.

``keyed``: rows of many keys, with a payload for size, as in CEC's experiments. ``reachability``: the query's commands
in the order of their numbers (``clonos_py/evaluation/reachability/generator.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.evaluation.nexmark import strings
from clonos_py.evaluation.nexmark.words import Int64s, below, splitmix64, words
from clonos_py.evaluation.reachability.generator import Command, commands
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Instant, Record

BASE_TIME_US = 1_700_000_000_000_000
BLOCK_ROWS = 50_000

_HOT_CHANCES = 1 << 16


class Keyed(Record):
    """A row of the keyed workload."""

    key: int
    value: int
    date_time: Instant
    payload: str


@dataclass(frozen=True)
class Synthetic:
    """A synthetic workload of ``rows`` rows. ``keys``: the number of keys, or nodes. ``skew``: the probability of key 0
    instead of a random key; ``payload_bytes``: the mean length of a payload; ``event_rate``: rows per second of event
    time."""

    rows: int
    workload: str = "keyed"
    seed: int = 1
    event_rate: int = 500_000
    keys: int = 100_000
    skew: float = 0.0
    payload_bytes: int = 100
    partitions: int = 8

    def __post_init__(self) -> None:
        if self.workload not in WORKLOADS:
            raise SettingError(f"workload is {self.workload!r}: choose one of {', '.join(WORKLOADS)}")
        for name in ("rows", "event_rate", "keys", "partitions"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: a workload needs at least 1")
        if not 0 <= self.skew <= 1 or not 0 <= self.payload_bytes <= 10_000 or self.keys > 2**31:
            raise SettingError("skew is from 0 to 1, payload_bytes at most 10000, keys at most 2**31")

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop)."""
        blocks = range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS))
        batches = [self._block(block) for block in blocks]
        return concat(batches).slice(start - blocks.start * BLOCK_ROWS, stop - start)

    def _block(self, block: int) -> pa.RecordBatch:
        numbers = np.arange(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS, dtype=np.int64)
        workload = WORKLOADS[self.workload]
        times = BASE_TIME_US + numbers * 1_000_000 // self.event_rate
        columns = workload.columns(self, block, numbers, times)
        arrays: list[pa.Array[Any]] = [pa.array(column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=workload.schema)

    def key(self, block: int, field: int) -> int:
        return splitmix64(splitmix64(splitmix64(self.seed) + block) + field)


def _keyed(workload: Synthetic, block: int, numbers: Int64s, times: Int64s) -> tuple[Any, ...]:
    random = [words(workload.key(block, field), BLOCK_ROWS) for field in range(4)]
    hot = (random[0] & np.uint32(_HOT_CHANCES - 1)) < round(workload.skew * _HOT_CHANCES)
    key = np.where(hot, 0, below(random[1], workload.keys))
    lengths = strings.lengths_about(random[3], workload.payload_bytes)
    return key, below(random[2], 1_000_000), times, strings.letters(workload.key(block, 4), lengths)


def _commands(workload: Synthetic, block: int, numbers: Int64s, times: Int64s) -> tuple[Any, ...]:
    return (*commands(workload.seed, workload.keys, numbers), times)


class Workload(NamedTuple):
    """The schema of a workload's rows, and the function that generates the columns of a block."""

    schema: pa.Schema
    columns: Callable[[Synthetic, int, Int64s, Int64s], tuple[Any, ...]]


WORKLOADS = {"keyed": Workload(Keyed.schema(), _keyed), "reachability": Workload(Command.schema(), _commands)}


def synthetic_of(options: Mapping[str, Any]) -> Synthetic:
    """The workload with these options; numbers may be text. Raises SettingError."""
    known = [field.name for field in fields(Synthetic)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise SettingError(f"there is no option {unknown[0]!r}: choose from {', '.join(known)}")
    try:
        return msgspec.convert(dict(options), Synthetic, strict=False)
    except msgspec.ValidationError as error:
        raise SettingError(f"an option of the workload is wrong: {error}") from error
