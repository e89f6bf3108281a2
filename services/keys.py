"""Idempotency keys of external calls (D16): what they are made of besides the request."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from clonos_py.model.operators import OperatorContext


class Origin(NamedTuple):
    """The input that causes a call: a row of a frame, as its task numbers frames. A row that waits across a change of
    parallelism keeps its origin, wherever it goes on."""

    numbering: str
    task: int
    channel: int
    sequence: int
    row: int

    def key(self, operator: str, call: int) -> str:
        """Names this input's call number ``call``."""
        parts = (self.numbering, operator, *self[1:], call)
        return "/".join(quote(str(part), safe="") for part in parts)


def origin_of(ctx: OperatorContext, row: int) -> Origin:
    """The frame at work and one of its rows; -1: none, a timer."""
    return Origin(ctx.numbering, ctx.task.index, *ctx.frame, row)
