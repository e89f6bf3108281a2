"""Rows for a check: the first rows of each source, or made-up rows if a source has none."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.model.errors import ClonosError
from clonos_py.model.operators import Discovered, End, Read
from clonos_py.plan.logical import Node, ReadSource

_PATIENCE_S = 2.0
_FIRST_INSTANT_US = 1_700_000_000_000_000
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


class SourceSample(NamedTuple):
    """Rows of a source by port. ``made_up``: they do not come from the source. ``error``: why it could not be read."""

    rows: list[pa.RecordBatch]
    made_up: bool
    error: str = ""


def sampled(node: Node, rows_max: int) -> SourceSample:
    """Reads rows of a source. They are made up if the source has none."""
    error, read = "", list[pa.RecordBatch]()
    try:
        read = _read(node, rows_max)
    except (ClonosError, OSError) as problem:
        error = str(problem)
    if any(batch.num_rows for batch in read):
        return SourceSample(read, False)
    return SourceSample([_made_up(schema, rows_max) for schema in node.schemas], True, error)


def _read(node: Node, rows_max: int) -> list[pa.RecordBatch]:
    work = node.work
    assert isinstance(work, ReadSource)
    found: list[list[pa.RecordBatch]] = [[] for _ in node.schemas]
    until_s = time.monotonic() + _PATIENCE_S
    source = work.definition.create((None,) * len(node.schemas), read_rows=rows_max)
    if source.consumes:
        return []
    source.open(0, 1)
    try:
        source.seek({})
        while time.monotonic() < until_s and max(sum(b.num_rows for b in port) for port in found) < rows_max:
            given = source.poll(time.time_ns() // 1_000)
            if isinstance(given, End):
                break
            if isinstance(given, Read):
                for port, batch in enumerate(given.rows):
                    found[port] += [batch] if batch is not None else []
            elif isinstance(given, Discovered):
                source.discovered(given.starts)
            else:
                time.sleep(0.01)
    finally:
        source.close()
    return [_joined(port, schema).slice(0, rows_max) for port, schema in zip(found, node.schemas, strict=True)]


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema)


def _made_up(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Made-up rows of a schema, the same with every call."""
    drawn = random.Random(7)
    return pa.RecordBatch.from_pylist(
        [{field.name: _value(field.type, number, drawn) for field in schema} for number in range(count)], schema
    )


def _value(kind: pa.DataType, number: int, drawn: random.Random) -> Any:
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    if pa.types.is_integer(kind):
        return drawn.randrange(100) if drawn.random() < 0.5 else number
    if pa.types.is_floating(kind):
        return drawn.uniform(-10, 1_000)
    if pa.types.is_decimal(kind):
        return Decimal(drawn.randrange(10_000)).scaleb(-kind.scale)
    if pa.types.is_timestamp(kind):
        return _FIRST_INSTANT_US + number * 100_000
    word = f"{drawn.choice(_WORDS)}-{number % 10}"
    return word.encode() if pa.types.is_binary(kind) else word if pa.types.is_string(kind) else None
