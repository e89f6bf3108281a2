"""``ctx`` of ``open``: the operator and task in which a function will run.

It offers no services. The replacement of a failed task opens the function again, and must get the same result. But
``open`` is not an event of the task's log, so services could give a different answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos_py.model.errors import UserCodeError
from clonos_py.model.operators import OperatorContext

_SERVICES = ("time", "random", "http", "call")
_OF_ROWS = ("key", "event_time", "watermark", "frame")


class OpenContext:
    """``operator``: the name of the operator. ``index``: that of this task among its ``parallelism`` tasks, from 0."""

    def __init__(self, ctx: OperatorContext) -> None:
        self.operator: str = ctx.operator
        self.index: int = ctx.task.index
        self.parallelism: int = ctx.parallelism

    if not TYPE_CHECKING:  # so that type checkers report these, too

        def __getattr__(self, name: str) -> Any:
            if name in _SERVICES:
                raise UserCodeError(
                    f"ctx.{name} is not available in open: a replacement calls open again, and could get another "
                    "answer; use it where rows are processed, or use none if what open creates is the same each time"
                )
            if name in _OF_ROWS:
                raise UserCodeError(f"there is no ctx.{name} in open: no row is being processed")
            if name == "metrics":
                raise UserCodeError(
                    "there is no ctx.metrics in open: a replacement calls open again and would count it"
                )
            raise AttributeError(f"OpenContext has no attribute {name!r}")
