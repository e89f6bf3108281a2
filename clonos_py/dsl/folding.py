"""``stream.key_by(...).reduce(function)`` and ``.fold(initial, function)``: a result after each row of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.functions import Signature, is_record, signature_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.processes import KeyedRowsOf, processed
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record, record_type
from clonos_py.model.times import Duration


class FoldOptions(NamedTuple):
    """``ttl``: after how much event time without rows a key begins again. ``in_order``: that of event time."""

    ttl: Duration | None = None
    in_order: bool = False

    @staticmethod
    def of(given: Mapping[str, Any]) -> FoldOptions:
        """Raises GraphError for others."""
        if other := next((name for name in given if name not in FoldOptions._fields), None):
            raise GraphError(f"{other}=: with a function it takes ttl= and in_order= only; aggregates stand alone")
        return FoldOptions(**given)


def reduced(rows: KeyedRowsOf, function: Callable[..., Any], site: CallSite, options: FoldOptions) -> OutputPort:
    """Adds a fold of rows of one class."""
    signature = _signature(rows, function, site)
    row = _row_class(signature, rows.rows)
    if (other := _other_class(signature, row)) is not None:
        raise GraphError(
            f"{signature.name} combines {row.__name__} rows, and takes or returns {other.__name__}: for a result of "
            "another class write .fold(initial, function)"
        )
    from clonos_py.operators.row_folds import fold_by  # most jobs have no process functions

    process = fold_by(function, signature.name, signature.wants_ctx, row, row, None, options.ttl)
    return processed(process, (rows,), options.in_order, site, "reduce")


def folded(
    rows: KeyedRowsOf, initial: Any, function: Callable[..., Any], site: CallSite, options: FoldOptions
) -> OutputPort:
    """Adds a fold from ``initial``, a record whose class is that of the results."""
    if not isinstance(initial, Record):
        raise GraphError(f"initial is {initial!r}: it must be a record of the class of the results, such as Total(0)")
    signature, result = _signature(rows, function, site), type(initial)
    if (other := _other_class(signature, result)) is not None:
        raise GraphError(f"{signature.name} takes or returns {other.__name__}, and initial is a {result.__name__}")
    from clonos_py.operators.row_folds import fold_by

    row = _row_class(signature, rows.rows)
    process = fold_by(function, signature.name, signature.wants_ctx, row, result, initial, options.ttl)
    return processed(process, (rows,), options.in_order, site, "fold")


def _signature(rows: KeyedRowsOf, function: Callable[..., Any], site: CallSite) -> Signature:
    refuse_changes(rows.rows, instead="write it before what makes the table")
    return signature_of(function, site.names, takes=("result", "row"), spelled="the result so far, a row")


def _row_class(signature: Signature, rows: OutputPort) -> type[Record]:
    """The class in which the function gets rows: that of its parameter, or else of the stream."""
    declared = signature.arguments[1]
    if is_record(declared):
        found: type[Record] = declared
        return found
    return rows.record or record_type(rows.schema)


def _other_class(signature: Signature, result: type[Record]) -> type[Record] | None:
    """Another class than that of the results that the function is annotated to take for them, or to return."""
    declared = (signature.arguments[0], signature.result)
    return next((found for found in declared if is_record(found) and found is not result), None)
