"""Windows as text: how the definition of an operator's state names its window, and what such a text means."""

from __future__ import annotations

import re

from clonos_py.model.state_definitions import seconds_text
from clonos_py.model.windows import (
    Assigned,
    AtClose,
    Counted,
    Cumulative,
    Emit,
    Hopping,
    Last,
    LastRows,
    OnChange,
    Session,
    Tumbling,
    Window,
)

_PROCESSING_TIME = " of processing time"
_SECONDS = r"(\d+(?:\.\d+)?)s"
_CUMULATIVE = re.compile(rf"{_SECONDS} by {_SECONDS}")
_COUNTED = re.compile(r"(\d+) rows every (\d+)")
_HOPPING = re.compile(rf"{_SECONDS} every {_SECONDS}")
_TUMBLING = re.compile(rf"tumbling {_SECONDS}")
_SESSION = re.compile(rf"session {_SECONDS}")


def window_text(window: Window | Counted | Assigned) -> str:
    """``tumbling 10s``, ``10s every 2s``, ``10s by 2s`` (growing), ``session 5s of processing time``, or
    ``4 rows every 2``.

    Whether incomplete count windows are emitted at the end is not part of it: that does not change the state."""
    if isinstance(window, Assigned):
        return "assigned by a function"
    if isinstance(window, Counted):
        return f"{window.size} rows every {window.every}"
    time = _PROCESSING_TIME if window.processing_time else ""
    match window:
        case Session(gap_us=gap_us):
            return f"session {seconds_text(gap_us)}{time}"
        case Cumulative(size_us=size_us, step_us=step_us):
            return f"{seconds_text(size_us)} by {seconds_text(step_us)}{time}"
        case Hopping(size_us=size_us, slide_us=slide_us):
            return f"{seconds_text(size_us)} every {seconds_text(slide_us)}{time}"
    return f"tumbling {seconds_text(window.size_us)}{time}"


def emit_text(emit: Emit) -> str:
    """``at close``, ``on change``, ``every 10s``, ``every 10s of processing time``."""
    match emit:
        case AtClose():
            return "at close"
        case OnChange():
            return "on change"
    return f"every {seconds_text(emit.period_us)}{_PROCESSING_TIME if emit.processing_time else ''}"


def last_text(last: Last) -> str:
    """The last rows of each row: ``last 10 rows``, ``last 3600s``."""
    return f"last {last.rows} rows" if isinstance(last, LastRows) else f"last {seconds_text(last.span_us)}"


def window_of(text: str) -> Window | Counted:
    """The window that ``window_text`` has written. Raises ValueError for any other text."""
    spans, processing_time = text.removesuffix(_PROCESSING_TIME), text.endswith(_PROCESSING_TIME)
    if found := _COUNTED.fullmatch(text):
        return Counted(int(found[1]), int(found[2]))
    if found := _HOPPING.fullmatch(spans):
        return Hopping(_micros(found[1]), _micros(found[2]), processing_time)
    if found := _CUMULATIVE.fullmatch(spans):
        return Cumulative(_micros(found[1]), _micros(found[2]), processing_time)
    if found := _TUMBLING.fullmatch(spans):
        return Tumbling(_micros(found[1]), processing_time)
    if found := _SESSION.fullmatch(spans):
        return Session(_micros(found[1]), processing_time)
    raise ValueError(f"{text!r} is no window")


def _micros(seconds: str) -> int:
    whole, _, fraction = seconds.partition(".")
    return int(whole) * 1_000_000 + int(f"{fraction:0<6}")
