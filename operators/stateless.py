"""Stateless operators on whole batches: filter, select, map_batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from clonos_py.columns.frames import ArrowFrame, ColumnError, TabularKind, batch_with, frame_of
from clonos_py.model.errors import Interrupted, UserCodeError
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.places import blamed, place_of_function
from clonos_py.operators.failures import problem_of, row_text, shortened
from clonos_py.operators.opening import close, opened
from clonos_py.services.context import Context

Evaluate = Callable[[pa.RecordBatch], Any]
"""A compiled expression: maps a batch to an array of the same length."""


class SharedResults(Protocol):
    """A cache of results that expressions share, for one batch at a time."""

    def clear(self) -> None:
        """Clears the cache."""
        ...


@contextmanager
def _cleared(shared: SharedResults | None) -> Iterator[None]:
    try:
        yield
    finally:
        if shared is not None:
            shared.clear()


class Filter(Operator):
    """Keeps the rows for which ``predicate`` is true, not false or null. ``shared``: the cache of common
    subexpressions."""

    def __init__(self, predicate: Evaluate, shared: SharedResults | None = None) -> None:
        self._predicate = predicate
        self._shared = shared

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        with _cleared(self._shared):
            mask = self._predicate(rows)
        kept = mask.true_count
        if kept == rows.num_rows:
            self.out.emit(rows)
        elif kept:
            self.out.emit(rows.filter(mask))


class Project(Operator):
    """Computes the columns of ``schema`` from expressions, by name. ``shared``: the cache of common subexpressions."""

    def __init__(
        self, columns: tuple[tuple[str, Evaluate], ...], schema: pa.Schema, shared: SharedResults | None = None
    ) -> None:
        by_name = dict(columns)
        self._expressions = [by_name[name] for name in schema.names]
        self._schema = schema
        self._shared = shared

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        with _cleared(self._shared):
            columns = [evaluate(rows) for evaluate in self._expressions]
        self.out.emit(pa.RecordBatch.from_arrays(columns, schema=self._schema))


class MapBatches(Operator):
    """Applies a user's function to batches, passed as frames of type ``kind``. Columns of the result are matched by
    name. Columns of a record batch must have the declared types; those of other frames are converted if the conversion
    is lossless."""

    verb = "map_batches"
    """As errors name it."""

    def __init__(
        self,
        fn: Callable[..., ArrowFrame],
        schema: pa.Schema,
        wants_ctx: bool = False,
        kind: TabularKind = TabularKind.BATCH,
    ) -> None:
        self._fn = fn
        self._kind = kind
        self._schema = schema
        self._wants_ctx = wants_ctx

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._fn = opened(self._fn, ctx)
        self._arguments = {"ctx": Context(ctx)} if self._wants_ctx else {}

    def close(self) -> None:
        close(self._fn, self.ctx)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(self._conformed(self._applied(rows)))

    def _applied(self, rows: pa.RecordBatch) -> ArrowFrame:
        try:
            result = self._fn(frame_of(rows, self._kind), **self._arguments)
        except Interrupted:
            raise
        except BaseException as error:
            first = shortened(row_text(rows, 0))
            subject = f"a batch of {rows.num_rows} rows, the first {first}"
            message = f"operator {self.ctx.operator!r} failed on {subject}: {problem_of(error)}"
            raise blamed(message, error, self._fn) from error
        if not isinstance(result, ArrowFrame):
            raise self._misfit(
                f"{self.verb} gave {type(result).__name__}, not a pyarrow.RecordBatch or Table, nor a frame of pandas "
                "or Polars"
            )
        return result

    def _misfit(self, problem: str) -> UserCodeError:
        return UserCodeError(f"operator {self.ctx.operator!r}: {problem}", place_of_function(self._fn))

    def _conformed(self, result: ArrowFrame) -> pa.RecordBatch:
        if not isinstance(result, pa.RecordBatch):
            try:
                return batch_with(result, self._schema)
            except ColumnError as error:
                raise self._misfit(f"of what {self.verb} gave, {error}") from error
        if result.schema.equals(self._schema):
            return result
        columns = [self._column(result, field) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, result: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
        index = result.schema.get_field_index(field.name)
        if (count := result.schema.names.count(field.name)) > 1:
            raise self._misfit(f"the batch that {self.verb} gave has {count} columns {field.name!r}: it takes one")
        found = "absent" if index < 0 else str(result.schema.field(index).type)
        if index >= 0 and result.column(index).type == field.type:
            if field.nullable or not result.column(index).null_count:
                return result.column(index)
            found = "partly null"
        declared = f"{field.type}{'' if field.nullable else ' without nulls'}"
        raise self._misfit(
            f"column {field.name!r} of the batch that {self.verb} gave is {found}, declared is {declared}"
        )
