"""The result of one step of a task, for its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clonos_py.model.calls import ServiceCall
from clonos_py.process.contract import FromTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """``events`` go to the link. ``wake_us``: the task has no work before this time or the next offer; None: step again
    at once. The driver starts ``calls`` now, and offers their answers."""

    events: Sequence[FromTask]
    wake_us: int | None
    calls: Sequence[ServiceCall] = ()
