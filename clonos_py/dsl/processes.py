"""What a process function says of itself: which row it takes and yields, from ``Process[Txn, Alert | Audit]``."""

from __future__ import annotations

import types
import typing
from typing import Any

from clonos_py.dsl.functions import is_record
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record


def process_types(process: type[Any]) -> tuple[type[Record], tuple[type[Record], ...]]:
    """The class of its input and those of its output. Raises GraphError where they are not Records."""
    from clonos_py.operators.process import Process

    if not (isinstance(process, type) and issubclass(process, Process)):
        raise GraphError(f"{process!r} is no process: give the class itself, derived from Process[In, Out]")
    for base in (base for cls in process.__mro__ for base in getattr(cls, "__orig_bases__", ())):
        if typing.get_origin(base) is Process:
            row, result = typing.get_args(base)
            outputs = _parts(result)
            if is_record(row) and outputs and all(map(is_record, outputs)):
                return row, outputs
    raise GraphError(f"{process.__name__}: say what it takes and yields, as Process[In, Out] with two Record classes")


def _parts(annotation: Any) -> tuple[Any, ...]:
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if union else (annotation,)
