"""Sizes and durations as text."""

from __future__ import annotations

_UNITS = ("kB", "MB", "GB", "TB")


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
