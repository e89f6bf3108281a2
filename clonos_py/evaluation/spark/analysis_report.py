"""Renders the figures of a run as one self-contained HTML page: a summary, plots and tables.

On every plot over time, a red line marks a failure, and a shaded band the time until latency was normal again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from clonos_py.evaluation.metrics import slowest_ms
from clonos_py.evaluation.page import card, document, legend, table, tile
from clonos_py.evaluation.plots import Plot, Point, linear, logarithmic
from clonos_py.evaluation.spark.analysis_words import number_text, percent_text, story, time_text
from clonos_py.observe.definitions import DEFINITIONS

_HUES = 5
_HALF_WIDTH = 520
_LABELS_MAX = 6
"""The number of failures that are labelled. Of further ones only the lines are drawn."""
_FAILURES_MAX = 50
_SHOWN_SETTINGS = ("runtime", "parallelism", "guarantee", "sharing_depth", "checkpoint_interval")
_TERMS = (
    *DEFINITIONS.items(),
    ("replayed", "rows that a replacement read again from its predecessor's log"),
)

Figures = Mapping[str, Any]


def page(figures: Figures) -> str:
    """The whole HTML document."""
    content = (
        f'<p class="story{" failed" if figures["failures"] else ""}">{escape(" ".join(story(figures)))}</p>',
        *_tiles(figures),
        *_latency(figures),
        _throughput(figures),
        *_failures(figures["failures"]),
        '<div class="pair">',
        _queues(figures),
        _retained(figures),
        _overhead(figures),
        _checkpoints(figures),
        "</div>",
        _vertices(figures["vertices_total"]),
        _definitions(),
    )
    return document(f"{figures['job']}: what happened", figures["job"], _meta(figures), content)


def _meta(figures: Figures) -> str:
    settings = figures["settings"]
    shown = [f"{key.replace('_', ' ')} {settings[key]}" for key in _SHOWN_SETTINGS if key in settings]
    began = figures["began"].replace("T", " ").replace("+00:00", " UTC")
    return " · ".join([f"{figures['seconds']:.1f} s, started {began}", *shown])


# ---- tiles


def _tiles(figures: Figures) -> Iterator[str]:
    calm, checkpoints, failures = figures["latency_ms"]["undisturbed"], figures["checkpoints"], figures["failures"]
    throughput = figures["throughput"]
    yield '<div class="tiles">'
    yield tile(
        number_text(throughput["steady_events_per_s"]),
        "events/s",
        f"in steady state, {number_text(throughput['events'])} events in all",
    )
    if calm:
        where = ", failures left out" if failures else ""
        yield tile(time_text(calm["p99"]), "p99 latency", f"p50 {time_text(calm['p50'])}{where}")
    if failures:
        yield tile(time_text(slowest_ms(failures, "restart_ms")), "to restart", "from detection, the slowest")
        yield tile(
            time_text(slowest_ms(failures, "recovery_ms")), "to recover", "until latency was normal, the slowest"
        )
    yield tile(
        time_text(checkpoints["median_ms"]),
        "per checkpoint",
        f"{checkpoints['completed']} completed, {time_text(checkpoints['max_ms'])} at most, "
        f"{checkpoints['aborted']} aborted, {checkpoints['skipped']} skipped",
    )
    sent = figures["bytes"]
    share = None if sent["overhead"] is None else sent["overhead"] - 1
    yield tile(percent_text(share), "message overhead", f"determinants over {_bytes(sent['data'])} of rows")
    yield "</div>"


# ---- plots


def _latency(figures: Figures) -> Iterator[str]:
    steps = figures["latency_ms"]["per_step"]
    if not steps:
        return
    plot = Plot(
        "Latency over time",
        figures["seconds"],
        logarithmic([step[name] for step in steps for name in ("p50", "max")], 270),
        time_text,
        top=24,
    )
    _bands(plot, figures)
    width_s = _step_s(steps)
    for name, hue in (("max", 5), ("p99", 1), ("p50", 0)):
        plot.line([(step["at_s"] + width_s / 2, step[name]) for step in steps], f"hue{hue}", 3.5 * width_s)
    for checkpoint in figures["checkpoints"]["all"]:
        plot.tick(checkpoint["completed_s"], "check", _checkpoint(checkpoint))
    _marks(plot, figures, labelled=True)
    plot.hints([(step["at_s"], _latency_hint(step)) for step in steps], width_s)
    entries = [("hue0", "p50"), ("hue1", "p99"), ("hue5", "worst"), ("check tri", "checkpoint complete")]
    if figures["failures"]:
        entries += [("fail", "a task failed"), ("heal block", "until latency is normal again")]
    yield _card("Latency over time", plot, *entries)


def _latency_hint(step: Figures) -> str:
    found = ", ".join(f"{name} {time_text(step[name])}" for name in ("p50", "p95", "p99", "max"))
    return f"{step['at_s']:g} s: {found} ({step['markers']} markers)"


def _throughput(figures: Figures) -> str:
    seconds = figures["throughput"]["per_second"]
    plot = _plot("Events per second", figures, max((s["events"] + s["replayed"] for s in seconds), default=0), 150)
    plot.steps([(s["at_s"], s["events"] + s["replayed"]) for s in seconds], 1.0, "hue2")
    plot.steps([(s["at_s"], s["events"]) for s in seconds], 1.0, "hue0")
    _marks(plot, figures)
    plot.hints([(s["at_s"], f"{s['at_s']} s: {number_text(s['events'])} events/s read") for s in seconds], 1.0)
    replayed = [("hue2 block", "read again in a replay")] if any(s["replayed"] for s in seconds) else []
    return _card("Events read per second", plot, ("hue0 block", "read by the sources"), *replayed)


def _queues(figures: Figures) -> str:
    by_vertex = _by_vertex(figures, "frames_queued")
    plot = _plot("Frames waiting", figures, _highest(by_vertex), 130, _HALF_WIDTH)
    for hue, points in enumerate(by_vertex.values()):
        plot.line(points, f"hue{hue % _HUES}")
    _marks(plot, figures)
    names = [(f"hue{hue % _HUES}", name) for hue, name in enumerate(by_vertex)]
    return _card("Frames that wait for their receivers", plot, *names)


def _retained(figures: Figures) -> str:
    totals: dict[float, list[float]] = {}
    for row in figures["levels"]:
        of_step = totals.setdefault(row["at_s"], [0.0, 0.0])
        totals[row["at_s"]] = [of_step[0] + row["in_flight_bytes"], of_step[1] + row["log_bytes"]]
    highest = max((max(values) for values in totals.values()), default=0)
    plot = _plot("Bytes retained", figures, highest, 130, _HALF_WIDTH, _bytes)
    plot.line([(at_s, frames) for at_s, (frames, _) in totals.items()], "hue0")
    plot.line([(at_s, log) for at_s, (_, log) in totals.items()], "hue2")
    _marks(plot, figures)
    return _card("Retained for replay", plot, ("hue0", "frames in memory"), ("hue2", "determinants held"))


def _overhead(figures: Figures) -> str:
    seconds = [s for s in figures["bytes"]["per_second"] if s["data"]]
    shares = [(s["at_s"] + 0.5, s["determinants"] / s["data"]) for s in seconds]
    plot = _plot("Overhead", figures, max((v for _, v in shares), default=0), 130, _HALF_WIDTH, percent_text)
    plot.line(shares, "hue2", 3.0)
    _marks(plot, figures)
    return _card("Determinants per byte of rows sent", plot, ("hue2", "message overhead"))


def _checkpoints(figures: Figures) -> str:
    found = figures["checkpoints"]["all"]
    plot = _plot("Checkpoints", figures, max((c["duration_ms"] for c in found), default=0), 130, _HALF_WIDTH, time_text)
    width_s = max(figures["seconds"] / 120, 0.05)
    for checkpoint in found:
        plot.steps([(checkpoint["completed_s"] - width_s / 2, checkpoint["duration_ms"])], width_s, "hue3")
    _marks(plot, figures)
    plot.hints([(c["completed_s"] - width_s / 2, _checkpoint(c)) for c in found], width_s)
    return _card("Time per checkpoint", plot, ("hue3 block", "from trigger to durable"))


def _checkpoint(checkpoint: Figures) -> str:
    number, size = checkpoint["checkpoint"], _bytes(checkpoint["bytes"])
    return f"checkpoint {number}: {time_text(checkpoint['duration_ms'])}, {size}"


def _plot(
    title: str,
    figures: Figures,
    highest: float,
    height: int,
    width: int = 1040,
    show: Callable[[float], str] = number_text,
) -> Plot:
    plot = Plot(title, figures["seconds"], linear(highest, height), show, width)
    _bands(plot, figures)
    return plot


def _bands(plot: Plot, figures: Figures) -> None:
    for failure in figures["failures"]:
        healed_ms = failure["recovery_ms"]
        until_s = figures["seconds"] if healed_ms is None else failure["at_s"] + healed_ms / 1e3
        plot.band(failure["at_s"], until_s, "heal")


def _marks(plot: Plot, figures: Figures, labelled: bool = False) -> None:
    for number, failure in enumerate(figures["failures"]):
        plot.mark(failure["at_s"], "fail", _label(failure) if labelled and number < _LABELS_MAX else "")


def _label(failure: Figures) -> str:
    if failure["recovery_ms"] is None:
        return f"{failure['task']} failed, no recovery within the trace"
    return f"{failure['task']} failed, {time_text(failure['recovery_ms'])} to recover"


def _by_vertex(figures: Figures, level: str) -> dict[str, list[Point]]:
    """The points of each vertex whose level was ever above 0, the highest first, up to the number of colours."""
    found: dict[str, list[Point]] = {}
    for row in figures["levels"]:
        found.setdefault(row["vertex"], []).append((row["at_s"], row[level]))
    ranked = sorted(found, key=lambda name: max(value for _, value in found[name]), reverse=True)
    return {name: found[name] for name in ranked[:_HUES] if any(value for _, value in found[name])}


def _highest(lines: Mapping[str, Sequence[Point]]) -> float:
    return max((value for points in lines.values() for _, value in points), default=0)


def _step_s(steps: Sequence[Figures]) -> float:
    """The least distance between two steps."""
    times = [step["at_s"] for step in steps]
    return min((b - a for a, b in itertools.pairwise(times)), default=1.0)


def _card(title: str, plot: Plot, *entries: tuple[str, str]) -> str:
    return card(title, legend(entries), plot.svg())


# ---- tables


def _failures(failures: Sequence[Figures]) -> Iterator[str]:
    if not failures:
        return
    heads = (
        "task", "failed at", "detected", "standby active", "replayed", "rows replayed", "first new result",
        "latency normal", "latency before", "worst latency",
    )  # fmt: skip
    rows = [
        (
            f["task"], f"{f['at_s']:.2f} s", time_text(f["detected_ms"]), time_text(f["activated_ms"]),
            time_text(f["replayed_ms"]), f"{f['rows_replayed']:,}", time_text(f["first_new_effect_ms"]),
            time_text(f["recovery_ms"]), time_text(f["latency_before_ms"]), time_text(f["latency_worst_ms"]),
        )
        for f in failures[:_FAILURES_MAX]
    ]  # fmt: skip
    more = f"<p>The first {_FAILURES_MAX} of {len(failures)}; the others are in the JSON.</p>"
    yield card(
        "Recovery from each failure",
        "<p>Times after the failure.</p>",
        table(heads, rows, "name"),
        *([more] if len(failures) > _FAILURES_MAX else []),
    )


def _vertices(totals: Sequence[Figures]) -> str:
    heads = ("operators", "tasks", "rows in", "rows out", "frames sent", "rows sent", "determinants sent", "CPU")
    rows = [
        (
            t["vertex"], str(t["tasks"]), f"{t['rows_in']:,}", f"{t['rows_out']:,}", f"{t['frames_sent']:,}",
            _bytes(t["data_bytes"]), _bytes(t["determinant_bytes"]),
            f"{t['cpu_us'] / 1e6:.1f} s" if t["cpu_us"] else "–",
        )
        for t in totals
    ]  # fmt: skip
    return card("Work per vertex", table(heads, rows, "name"))


def _definitions() -> str:
    terms = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _TERMS)
    return card("Definitions", f"<dl>{terms}</dl>")


def _bytes(size: float) -> str:
    return number_text(size, "B")
