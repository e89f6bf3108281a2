"""Sizes and durations as text."""

from __future__ import annotations

from clonos_py.model.resources import Resources

_UNITS = ("kB", "MB", "GB", "TB")
_BINARY_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def duration_text(duration_us: int) -> str:
    """``14000`` as ``14 ms``, in the largest unit in which the value is at least 10. Negative ones are shown as 0."""
    for unit_us, unit in ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if duration_us >= 10 * unit_us:
            return f"{duration_us / unit_us:,.0f} {unit}"
    return f"{max(duration_us, 0) / 1000:,.0f} ms"


def bytes_text(size: int) -> str:
    """``1234567`` as ``1.2 MB``."""
    if size < 1000:
        return f"{size} B"
    power = min((len(str(size)) - 1) // 3, len(_UNITS))
    return f"{size / 1000**power:.1f} {_UNITS[power - 1]}"


def resources_text(resources: Resources) -> str:
    """``2 cpus, 4GiB memory, 1 gpu``, without what there is none of."""
    amounts = [
        _amount_text(resources.cpus, "cpu"),
        f"{memory_text(resources.memory_bytes)} memory" if resources.memory_bytes else "",
        _amount_text(resources.gpus, "gpu"),
    ]
    return ", ".join(filter(None, amounts)) or "nothing"


def _amount_text(amount: float, kind: str) -> str:
    return f"{amount:g} {kind}{'s' * (amount != 1)}" if amount else ""


def memory_text(size: int) -> str:
    """In binary units, as a job writes limits."""
    unit, size_bytes = next((found for found in _BINARY_UNITS if abs(size) >= found[1]), ("B", 1))
    return f"{size / size_bytes:.4g}{unit}"
