"""What a step of a task gives its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clonos_py.model.calls import ServiceCall
from clonos_py.process.contract import FromTask


@dataclass(frozen=True, slots=True)
class Outcome:
    """``events`` are for the link. ``wake_us``: nothing to do before this time or the next offer; None: step again at
    once. ``calls`` are to be started now, and their answers offered."""

    events: Sequence[FromTask]
    wake_us: int | None
    calls: Sequence[ServiceCall] = ()
