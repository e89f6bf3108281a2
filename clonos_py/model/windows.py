"""Windows as values, created by the DSL and computed by operators."""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.model.hidden import hidden

WINDOW_START, WINDOW_END = "window_start", "window_end"
BOUNDS = (WINDOW_START, WINDOW_END)
"""The columns of results that say which window they belong to: integers in microseconds, or times."""
ASSIGNED_BOUNDS = (hidden(WINDOW_START), hidden(WINDOW_END))
"""int64 columns, in microseconds."""


@dataclass(frozen=True)
class Tumbling:
    """[k * size, (k + 1) * size) in microseconds, aligned to the epoch."""

    size_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Hopping:
    """Windows of ``size_us`` that start every ``slide_us``; a row belongs to size / slide of them."""

    size_us: int
    slide_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Cumulative:
    """[k * size, k * size + n * step) for each n up to size / step: windows that grow until the next ones begin."""

    size_us: int
    step_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Assigned:
    """Windows that a function of the user has assigned: rows have their bounds in the columns ``ASSIGNED_BOUNDS``. A
    row of several windows is there for each of them."""


@dataclass(frozen=True)
class Session:
    """Rows of a key less than ``gap_us`` apart; the window ends ``gap_us`` after its last row."""

    gap_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Counted:
    """``size`` rows of a key, in their order of arrival. A window starts with every ``every``-th row; ``size`` is a
    multiple of it. ``incomplete``: windows that are incomplete at the end of all input are emitted, too."""

    size: int
    every: int
    incomplete: bool = False


@dataclass(frozen=True)
class LastSpan:
    """Of each row, the rows of its key that are at most ``span_us`` earlier, and all of its own time."""

    span_us: int


@dataclass(frozen=True)
class LastRows:
    """Of each row, the last ``rows`` rows of its key in the order of event time, itself included."""

    rows: int


@dataclass(frozen=True)
class AtClose:
    """Results of a window are emitted when it closes."""


@dataclass(frozen=True)
class OnChange:
    """Results are emitted with each batch that changes them."""


@dataclass(frozen=True)
class Every:
    """Results that have changed are emitted at each multiple of ``period_us``, and when their window closes."""

    period_us: int
    processing_time: bool = False


Emit = AtClose | OnChange | Every
Last = LastSpan | LastRows
InPanes = Tumbling | Hopping | Cumulative
Bounded = InPanes | Assigned
"""Windows of which a row tells the bounds when it comes."""
Window = InPanes | Session
