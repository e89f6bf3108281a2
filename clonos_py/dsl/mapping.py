"""Verbs that call a user's function, per row or per batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa

from clonos_py.columns.frames import TabularKind
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.functions import Shape, Signature, is_record, record_of, returned, signature_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import carried
from clonos_py.dsl.row_counts import check_row_count
from clonos_py.dsl.shapes import check_row
from clonos_py.dsl.waiting import async_options
from clonos_py.model.errors import GraphError
from clonos_py.model.record import DeadLetter, Record, schema_of
from clonos_py.model.times import Duration, micros
from clonos_py.plan.logical import CallPerBatch, CallPerRow


def called_per_row(
    rows: OutputPort,
    kind: Literal["map", "flat_map", "filter"],
    function: Callable[..., Any],
    returns: Shape | None,
    site: CallSite,
    options: Mapping[str, Any],
) -> OutputPort:
    """Adds a function of one row; output 1 has the rows on which it failed. ``options``: see WaitingOptions."""
    signature = signature_of(function, site.names, async_allowed=True)
    row = signature.row if is_record(signature.row) else rows.record
    if row is not None:
        check_row(schema_of(row), rows.schema, row.__name__)
    work = CallPerRow(kind, function, row, signature.wants_ctx, waiting=async_options(signature, options))
    shape: Shape = rows.schema if kind == "filter" else returned(signature, returns, kind == "flat_map")
    record = rows.record if kind == "filter" else record_of(shape)
    return _derived(rows, kind, work, schema_of(shape), record, site)


def called_per_batch(
    rows: OutputPort, function: Callable[..., Any], returns: Shape, at_once: int | None, wait: Duration, site: CallSite
) -> OutputPort:
    """Adds a function of record batches, or of the tabular type that its parameter is annotated with. ``at_once``: how
    many rows it gets, and ``wait``: how long fewer rows may wait for others."""
    signature = signature_of(function, site.names)
    shape = returned(signature, returns, many=False)
    work = CallPerBatch(function, signature.wants_ctx, frame_kind(signature), _gathered(at_once, wait))
    return _derived(rows, "map_batches", work, schema_of(shape), record_of(shape), site)


def _gathered(at_once: int | None, wait: Duration) -> tuple[int, int] | None:
    wait_us = micros(wait)
    if wait_us <= 0:
        raise GraphError(f"wait={wait!r}: it must be more than 0")
    if at_once is None:
        return None
    check_row_count("rows", at_once)
    return at_once, wait_us


def frame_kind(signature: Signature) -> TabularKind:
    """The tabular type of the function's parameter; a record batch if it has no annotation."""
    annotation = signature.row
    if annotation is None or annotation is Any:
        return TabularKind.BATCH
    module = str(getattr(annotation, "__module__", "")).partition(".")[0]
    name = getattr(annotation, "__name__", str(annotation))
    found = [kind for kind in TabularKind if kind.value == f"{module}.{name}"]
    if not found:
        known = ", ".join(kind.value for kind in TabularKind)
        raise GraphError(f"{signature.name} takes {name}; a function of batches takes one of {known}")
    return found[0]


def _derived(
    rows: OutputPort,
    verb: str,
    work: CallPerRow | CallPerBatch,
    schema: pa.Schema,
    record: type[Record] | None,
    site: CallSite,
) -> OutputPort:
    """Adds the node. Event time stays with the column of the same name."""
    schemas = (schema, DeadLetter.schema()) if isinstance(work, CallPerRow) else (schema,)
    records = (record, DeadLetter)[: len(schemas)]
    return rows.followed(verb, work, schemas, site, records, (carried(rows.time, schema),))
