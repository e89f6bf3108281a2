"""Idempotency keys of external calls (D16): the parts that identify the input."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from clonos_py.model.operators import OperatorContext


class Origin(NamedTuple):
    """The input that causes a call: a row of a frame, in the numbering of the task that received it. A row that waits
    across a change of parallelism keeps its origin, in whichever task it continues."""

    numbering: str
    task: int
    channel: int
    sequence: int
    row: int

    def key(self, operator: str, call: int) -> str:
        """The key of call number ``call`` of this input."""
        parts = (self.numbering, operator, *self[1:], call)
        return "/".join(quote(str(part), safe="") for part in parts)


def origin_of(ctx: OperatorContext, row: int) -> Origin:
    """The origin of a row of the current frame. ``row``: -1 for none, a timer."""
    return Origin(ctx.numbering, ctx.task.index, *ctx.frame, row)
