"""What users write about the resources of an operator."""

from __future__ import annotations

import math

from clonos_py.model.errors import GraphError, SettingError
from clonos_py.model.resources import Resources
from clonos_py.settings.kinds import SIZE


def resources_of(cpus: object, memory: object, gpus: object) -> Resources:
    """The resources of these amounts. Raises GraphError for one that is none, and if all are left out."""
    found = Resources(_amount("cpus", cpus), _bytes(memory), _amount("gpus", gpus))
    if found.gpus > 1 and not found.gpus.is_integer():
        raise GraphError(f"gpus={gpus!r}: more than one GPU must be a whole number; a fraction is a share of one")
    if not found:
        raise GraphError("give at least one of cpus=, memory= and gpus=, which is more than 0")
    return found


def _amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise GraphError(f"{name}={value!r} is no amount: write a number of at least 0, such as 2 or 0.5")
    if value != round(value, 4):
        raise GraphError(f"{name}={value!r} is finer than Ray counts: write at most four digits behind the point")
    return float(value)


def _bytes(memory: object) -> int:
    if memory is None:
        return 0
    try:
        size_bytes = SIZE.parse(memory)
    except SettingError as error:
        raise GraphError(f"memory={error}") from None
    if not size_bytes:
        raise GraphError(f"memory={memory!r} is no limit: it must be more than 0")
    return size_bytes
