"""Python row functions: map, flat_map and filter (D13).

Rows are decoded a few thousand at a time, passed to the function one by one, and the results are encoded together. The
results of one row are atomic: if the function raises half-way, or one result does not fit the schema, none of the row's
results is emitted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from clonos_py.columns.row_watermarks import with_watermarks, without_watermarks
from clonos_py.columns.views import Column, take
from clonos_py.model.errors import Interrupted
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, decode_each, encode
from clonos_py.operators.failures import RowFailures
from clonos_py.operators.opening import close, opened
from clonos_py.services.context import Context

RESULTS = 0
DEAD_LETTERS = 1

Kind = Literal["map", "flat_map", "filter"]


_NOT_AWAITED = "it gave a coroutine: write the function, and what wraps it, as `async def`, and await in it"


def truth_of(given: Any) -> bool:
    """Whether a filter keeps a row. Raises TypeError for a coroutine, which would always be true."""
    if inspect.iscoroutine(given):
        given.close()
        raise TypeError(_NOT_AWAITED)
    return bool(given)


def misfit_of(error: FieldError, result: Any, kind: str) -> FieldError:
    """The error for a result that does not fit its schema; suggests ``flat_map`` if ``map`` returned several rows."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that nothing has awaited it
        return FieldError(_NOT_AWAITED, error.row)
    if kind != "map" or not isinstance(result, list | tuple | Iterator):
        return error
    what = type(result).__name__
    first = next(iter(result), None) if isinstance(result, list | tuple) else None
    row = type(first).__name__ if isinstance(first, Record) else "Row"
    return FieldError(
        f"it returns a {what} where one row is declared: use flat_map with `-> Iterator[{row}]`", error.row
    )


class MapRows(Operator):
    """Applies ``fn`` to each row, given as ``row_type`` (None: a record with all columns of the input).

    Emits on port 0 what ``map`` returned, what ``flat_map`` returned or yielded, or the rows for which ``filter``
    returned true; on port 1 a DeadLetter for each row that failed, if ``on_error`` is "catch". Otherwise the first
    failure raises UserCodeError.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        row_type: type[Record] | None,
        schema: pa.Schema,
        kind: Kind,
        wants_ctx: bool = False,
        on_error: Literal["fail", "catch"] = "fail",
    ) -> None:
        self._fn = fn
        self._row_type = row_type
        self._schema = schema
        self._kind = kind
        self._wants_ctx = wants_ctx
        self._catch = on_error == "catch"
        self._watermarks: Column | None = None
        """Of the rows that are processed, if they come with it."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._fn = opened(self._fn, ctx)
        self._context = Context(ctx) if self._wants_ctx else None
        self._failures = RowFailures(ctx, self._catch)

    def close(self) -> None:
        close(self._fn, self.ctx)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, self._watermarks = without_watermarks(rows)

        def failed(row: int, error: Exception) -> None:
            self._failures.add(rows, row, error, self._fn)

        for part, numbers in decode_each(rows, self._row_type or record_type(rows.schema), failed):
            results, origins = self._applied(rows, numbers, part)
            if self._kind == "filter":
                kept = [row for result, row in zip(results, origins, strict=True) if result]
                self._emit_kept(rows, kept)
            else:
                self._emit_results(rows, results, origins)
        letters = self._failures.take()
        if letters is not None:
            self.out.emit(letters, DEAD_LETTERS)

    def _applied(self, rows: pa.RecordBatch, numbers: Sequence[int], part: list[Any]) -> tuple[list[Any], list[int]]:
        """The results, and for each the number of its input row in the batch."""
        results: list[Any] = []
        origins: list[int] = []
        fn, context, many = self._fn, self._context, self._kind == "flat_map"
        chooses = self._kind == "filter"
        for row, record in zip(numbers, part, strict=True):
            try:
                given: Any = fn(record) if context is None else self._with_context(record, row, context)
                if many:
                    given = list(given or ())
                elif chooses:
                    given = given is True or (given is not False and truth_of(given))
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever user code raises is the row's failure
                self._failures.add(rows, row, error, self._fn)
                continue
            if many:
                results.extend(given)
                origins.extend([row] * len(given))
            else:
                results.append(given)
                origins.append(row)
        return results, origins

    def _with_context(self, record: Any, row: int, context: Context) -> Any:
        context.at_row(row)
        return self._fn(record, ctx=context)

    def _emit_kept(self, rows: pa.RecordBatch, kept: list[int]) -> None:
        if self._watermarks is not None:
            rows = with_watermarks(rows, self._watermarks)
        if len(kept) == rows.num_rows:
            self.out.emit(rows)
        elif kept:
            self.out.emit(rows.take(pa.array(kept, pa.int32())))

    def _emit_results(self, rows: pa.RecordBatch, results: list[Any], origins: list[int]) -> None:
        try:
            batches = self._encoded(results, origins)
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001 - what a result raises when it is read is the failure of its row
            batches = self._encoded(*self._fitting(rows, results, origins))
        for batch in batches:
            self.out.emit(batch, RESULTS)

    def _encoded(self, results: list[Any], origins: list[int]) -> list[pa.RecordBatch]:
        """The results as batches, with the watermarks of their input rows, if these have them."""
        cuts = range(0, len(results), SLICE_ROWS)
        batches = [encode(results[start : start + SLICE_ROWS], self._schema) for start in cuts]
        if self._watermarks is None:
            return batches
        found = take(self._watermarks, np.array(origins, np.int64))
        return [
            with_watermarks(batch, found.slice(start, SLICE_ROWS)) for start, batch in zip(cuts, batches, strict=True)
        ]

    def _fitting(self, rows: pa.RecordBatch, results: list[Any], origins: list[int]) -> tuple[list[Any], list[int]]:
        """The results of the rows whose results all fit the schema, with the numbers of these rows. Records the other
        rows as failed."""
        failed: dict[int, BaseException] = {}
        for result, origin in zip(results, origins, strict=True):
            try:
                encode([result], self._schema)
            except FieldError as error:
                failed.setdefault(origin, misfit_of(error, result, self._kind))
            except Interrupted:
                raise
            except BaseException as error:  # noqa: BLE001 - see _emit_results
                failed.setdefault(origin, error)
        for origin, misfit in failed.items():
            self._failures.add(rows, origin, misfit, self._fn)
        fitting = [origin not in failed for origin in origins]
        return list(compress(results, fitting)), list(compress(origins, fitting))
