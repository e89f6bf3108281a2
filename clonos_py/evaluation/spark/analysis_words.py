"""Figures as text: numbers with units, and a summary of a run in a few sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SECOND_MS = 1000.0
_BIG = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_LONGEST_LIST = 4


def time_text(ms: float | None) -> str:
    """``1234.5`` as ``1.23 s``; a dash for an unknown value."""
    if ms is None:
        return "–"
    if ms >= 10 * _SECOND_MS:
        return f"{ms / _SECOND_MS:,.1f} s"
    if ms >= _SECOND_MS:
        return f"{ms / _SECOND_MS:.2f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms" if ms >= 1 else f"{ms:.2g} ms"


def number_text(value: float | None, unit: str = "") -> str:
    """``1234567`` as ``1.23 M``."""
    if value is None:
        return "–"
    for size, prefix in _BIG:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def percent_text(share: float | None) -> str:
    """``0.01234`` as ``1.2%``."""
    return "–" if share is None else f"{share * 100:.0f}%" if share >= 0.1 else f"{share * 100:.2g}%"


def story(figures: Mapping[str, Any]) -> Iterator[str]:
    """The summary of a run, sentence by sentence."""
    failures, notes = figures["failures"], figures["notes"]
    yield from _failures(failures)
    rolled_back = [note for note in notes if note["what"] == "RolledBack"]
    for note in rolled_back:
        yield f"At {note['at_s']:.1f} s the whole job rolled back to checkpoint {note['checkpoint']}: {note['detail']}."
    for note in notes:
        if note["what"] == "RestartedWithoutLog":
            yield f"At {note['at_s']:.1f} s exactly-once was lost: {note['detail']}."
        if note["what"] == "CoordinatorReplaced":
            yield f"At {note['at_s']:.1f} s the coordinator was lost and replaced."
        if note["what"] == "TraceStopped":
            yield f"The trace ends early: {note['detail']}."
    if failures and not rolled_back:
        yield "No other task was restarted."
    match figures["ending"]:
        case "finished":
            pass
        case "unknown":
            yield "The trace has no end: the run was killed, or is still running."
        case "interrupted":
            yield f"The run was interrupted at {figures['seconds']:.1f} s."
        case error:
            yield f"The job ended with an error at {figures['seconds']:.1f} s: {error}"


def _failures(failures: list[Mapping[str, Any]]) -> Iterator[str]:
    if not failures:
        yield "Nothing failed."
    elif len(failures) <= _LONGEST_LIST:
        yield from map(_failure, failures)
    else:
        healed = sorted(failure["recovery_ms"] for failure in failures if failure["recovery_ms"] is not None)
        yield f"{len(failures)} tasks failed, the first at {failures[0]['at_s']:.1f} s."
        yield f"Latency was normal again after each of {len(healed)} of them" + (
            f", after {time_text(healed[len(healed) // 2])} in the median and {time_text(healed[-1])} at most."
            if healed
            else "."
        )


def _failure(failure: Mapping[str, Any]) -> str:
    steps = (
        ("its standby took over after", failure["activated_ms"]),
        ("new results came after", failure["first_new_effect_ms"]),
        ("latency was normal again after", failure["recovery_ms"]),
    )
    parts = [f"{words} {time_text(ms)}" for words, ms in steps if ms is not None]
    if failure["recovery_ms"] is None:
        parts.append("latency did not return to normal within the trace")
    return f"{failure['task']} failed at {failure['at_s']:.1f} s ({failure['how']}): {', '.join(parts)}."
