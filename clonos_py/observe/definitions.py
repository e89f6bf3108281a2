"""What the figures of a run mean: each has one definition, in reports, traces and benchmarks alike.

They are CheckMate's (section V), with one difference: a restart ends with the first new effect, which can be observed
from outside, and not when the system is ready to process. So it includes the replay. Times are microseconds of one
clock.
"""

from __future__ import annotations

from collections.abc import Mapping

DEFINITIONS: Mapping[str, str] = {
    "latency": "from when an event should have been created until it reached a sink, sampled by markers",
    "restart": "from detection until the replacement has sent a frame or written a row that its predecessor had not",
    "recovery": "from the failure until the worst latency is within 10% (and 2 ms) of what it was before",
    "checkpointing time": "from trigger until every task's state is durable and the manifest is written",
    "overhead": "all bytes sent between tasks per byte of rows; 1.0 means no overhead",
}
"""By name of the figure: its definition in one line, as pages show it."""


def restart_ms(detected_us: int | None, effect_us: int | None) -> float | None:
    """The restart time of a failure, or of several at once. ``effect_us``: the first new effect of its
    replacement, or of the last of their replacements."""
    return span_ms(detected_us, effect_us)


def recovery_ms(failed_us: int | None, normal_us: int | None) -> float | None:
    """The recovery time of a failure. ``normal_us``: since when latency is normal (``observe/normality.py``)."""
    return span_ms(failed_us, normal_us)


def overhead(row_bytes: float, other_bytes: float) -> float | None:
    """All bytes per byte of rows. ``other_bytes``: determinants and stamps."""
    return (row_bytes + other_bytes) / row_bytes if row_bytes else None


def span_ms(since_us: int | None, until_us: int | None) -> float | None:
    """The milliseconds between two times; None if one of them is not known."""
    return None if since_us is None or until_us is None else (until_us - since_us) / 1_000
