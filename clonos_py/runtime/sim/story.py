"""Formats a coordinator's events as text, for the stories that simulated runs print."""

from __future__ import annotations

import re

from clonos_py.model.coordinator_events import CoordinatorEvent

_WORD_BEGINS = re.compile(r"(?<!^)(?=[A-Z])")


def words(event: CoordinatorEvent) -> str:
    """An event as text, such as ``standby promoted join[0], attempt 1.2``: its name, its task, and its other fields."""
    details = [f"{name} {getattr(event, name)}" for name in event.__struct_fields__]
    return ", ".join([_WORD_BEGINS.sub(" ", type(event).__name__).lower(), *details]).replace(", task ", " ", 1)
