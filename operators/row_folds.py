"""Folds of a user's function over the rows of a key, with a result after each row, as process functions."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from clonos_py.model.errors import UserCodeError, shown
from clonos_py.model.record import Record
from clonos_py.model.times import Duration
from clonos_py.operators.process_functions import Process
from clonos_py.operators.process_state import state
from clonos_py.services.context import Context


class _Fold(Process[Any, Any]):
    """Gives the result of each row. The attribute ``value`` is the last result of the key."""

    value: Any

    def __init__(self, function: Callable[..., Any], wants_ctx: bool) -> None:
        self.function, self.wants_ctx = function, wants_ctx

    def on_row(self, row: Any, ctx: Context, /) -> Any:
        value = self.value
        self.value = found = row if value is None else self._folded(value, row, ctx)
        return found

    def _folded(self, value: Any, row: Any, ctx: Context) -> Any:
        given = (value, row, ctx) if self.wants_ctx else (value, row)
        found = self.function(*given)
        if not isinstance(found, Record):
            raise UserCodeError(f"the function returned {shown(found)}: it must return the result for this row")
        return found


def fold_by(
    function: Callable[..., Any],
    name: str,
    wants_ctx: bool,
    row: type[Record],
    result: type[Record],
    initial: Record | None,
    ttl: Duration | None,
) -> Process[Any, Any]:
    """A process that calls ``function`` with the key's last result and each row. ``initial``: what it gets with the
    first row of a key; None: the first row is its own result. With a ``ttl`` a key begins again that much event time
    after its last row."""

    def declared(body: dict[str, Any]) -> None:
        body["__annotations__"] = {"value": result | None if initial is None else result}
        body["value"] = state(initial, ttl=ttl)

    fold: Any = types.new_class(name.rpartition(".")[2], (_Fold, Process[row, result]), {}, declared)  # type: ignore[valid-type]
    process: Process[Any, Any] = fold(function, wants_ctx)
    return process
