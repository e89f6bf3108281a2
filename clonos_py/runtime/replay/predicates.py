"""Conditions on rows that a user writes as Python expressions, such as ``amount > 100 and account == 7``.

A condition may name the columns of a row and ``row``, the row itself; in process functions also ``key``, and ``timer``,
the name of the timer that fires, which is None for rows. Only a condition that names ``timer`` is evaluated for timers.
It then sees the key's columns. The builtins of Python are available, and the names of ``_TYPES``.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from clonos_py.model.errors import Interrupted, SettingError, type_and_text

ROW, KEY, TIMER = "row", "key", "timer"
_TYPES = {
    "UTC": UTC, "Decimal": Decimal, "date": date, "datetime": datetime, "math": math, "re": re, "timedelta": timedelta
}  # fmt: skip

Condition = Callable[[Any, Any, "str | None"], bool]
"""Gets a row, its key and the name of a timer. Raises SettingError if it cannot be evaluated."""


class RowPredicate:
    """A condition on rows of any operator."""

    def __init__(self, text: str) -> None:
        """Raises SettingError if it is no expression."""
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval")
            compile(self._tree, "<condition>", "eval")
        except (SyntaxError, ValueError) as error:
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SettingError(
                f"{text!r} is no Python expression ({what}): write a condition on the columns of a row, such as "
                "'amount > 100'"
            ) from error
        bound = set(_bound(self._tree))
        read = [node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)]
        self._names = [name for name in dict.fromkeys(read) if name not in bound]

    def __str__(self) -> str:
        return self.text

    @property
    def of_timers(self) -> bool:
        """Whether it names ``timer``."""
        return TIMER in self._names

    @property
    def of_keys(self) -> bool:
        """Whether it names ``key``."""
        return KEY in self._names

    def unknown(self, offered: Collection[str], keyed: bool = False) -> list[str]:
        """The names in it that rows with these columns do not have. ``keyed``: whether there are keys and timers."""
        known = {ROW, *_TYPES, *((KEY, TIMER) if keyed else ())}
        return [n for n in self._names if n not in known and n not in offered and not hasattr(builtins, n)]

    def condition(self, columns: Collection[str]) -> Condition:
        """The condition for rows with these columns, which are attributes of a row."""
        taken = [name for name in self._names if name in columns]
        body = _Columns(frozenset(taken)).visit(ast.parse(self.text.strip(), mode="eval")).body
        names = [ast.arg(name) for name in (_HIDDEN_ROW, ROW, KEY, TIMER)]
        function = ast.Lambda(
            ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[]), body
        )
        code = compile(ast.fix_missing_locations(ast.Expression(function)), "<condition>", "eval")
        holds: Callable[[Any, Any, Any, Any], Any] = eval(code, dict(_TYPES))  # the user's own code, like the job

        def checked(row: Any, key: Any = None, timer: str | None = None) -> bool:
            try:
                return bool(holds(row, row, key, timer))
            except Interrupted:
                raise
            except Exception as error:
                raise SettingError(
                    f"the condition {self.text!r} raised {type_and_text(error)} for {row!r}: write it so that it holds "
                    "or not for every row, such as 'amount is not None and amount > 100'"
                ) from error

        return checked


_HIDDEN_ROW = "~row"
"""The argument of which columns are attributes, even if a column is called ``row``."""


class _Columns(ast.NodeTransformer):
    """Replaces the names of columns by attributes of the row."""

    def __init__(self, columns: frozenset[str]) -> None:
        self._columns = columns

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._columns or not isinstance(node.ctx, ast.Load):
            return node
        return ast.Attribute(ast.Name(_HIDDEN_ROW, ast.Load()), node.id, ast.Load())


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that the expression itself defines: in comprehensions, lambdas and by ``:=``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
