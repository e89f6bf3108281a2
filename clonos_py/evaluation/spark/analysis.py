"""Computes figures from a trace: latency, throughput, checkpoints, restarts, recoveries, protocol overhead.

The definitions are in ``observe/definitions.py``, and the same for every protocol. A trace has no bytes of stamps, so
these are not part of the overhead.

Spark reduces a trace of any size to small tables by time. Plain Python computes the figures from these.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from clonos_py.evaluation.metrics import WARM_UP_US, RateSample, durations_ms, throughput
from clonos_py.evaluation.spark import analysis_tables as tables
from clonos_py.observe.definitions import overhead, recovery_ms, restart_ms, span_ms
from clonos_py.observe.metrics import LATENCY_WINDOW_US
from clonos_py.observe.normality import Healing, LatencyWindow, healings
from clonos_py.observe.trace import read_header

SECOND_US = 1_000_000
_POINTS_MAX = 480
_STEPS_US = (250_000, SECOND_US, 5 * SECOND_US, 30 * SECOND_US, 300 * SECOND_US)
_TOTALS = ("rows_in", "rows_replayed", "rows_out", "frames_sent", "data_bytes", "determinant_bytes", "cpu_us")
_GIVEN_UP = (
    "CheckpointAborted",
    "RolledBack",
    "RestartedWithoutLog",
    "CoordinatorReplaced",
    "TraceStopped",
    "KillMissed",
)
_ENDINGS = ("Finished", "Broken")
_REPORTED = ("CheckpointCompleted", "CheckpointSkipped", *_ENDINGS, *_GIVEN_UP)

Row = dict[str, Any]


def analyse(spark: SparkSession, trace: Path) -> Row:
    """All figures of a trace, as plain data for JSON. Times are in seconds since deployment, unless their name has
    another unit."""
    header = read_header(trace)
    loaded = tables.load(spark, trace)
    readings, markers, events = (loaded[name] for name in ("readings", "markers", "events"))
    reported = _rows(events.where(f.col("what").isin(*_REPORTED)).orderBy("at_us"))
    last_us = max((found.agg(f.max("at_us")).first() or [None])[0] or 0 for found in (readings, events))
    step_us = next((step for step in _STEPS_US if last_us / step <= _POINTS_MAX), _STEPS_US[-1])
    failed = _failures(tables.failures(events), _windows(markers))
    sources = [vertex["name"] for vertex in header["vertices"] if vertex["source"]]
    seconds = _rows(tables.growth(readings, _TOTALS, SECOND_US).orderBy("step"))
    return {
        **header,
        "seconds": last_us / 1e6,
        "ending": next((row["detail"] or "finished" for row in reported if row["what"] in _ENDINGS), "unknown"),
        "latency_ms": _latency(markers, failed, step_us),
        "throughput": _throughput([row for row in seconds if row["vertex"] in sources]),
        "bytes": _bytes(seconds),
        "levels": _levels(tables.levels(readings, step_us), step_us),
        "vertices_total": _totals(seconds, header["vertices"]),
        "checkpoints": _checkpoints(reported),
        "failures": failed,
        "notes": [
            {"at_s": row["at_us"] / 1e6, "what": row["what"], "detail": row["detail"], "checkpoint": row["checkpoint"]}
            for row in reported
            if row["what"] in _GIVEN_UP
        ],
    }


def _rows(found: DataFrame) -> list[Row]:
    return [row.asDict() for row in found.collect()]


# ---- latency


def _windows(markers: DataFrame) -> list[LatencyWindow]:
    worst = markers.groupBy(tables.step_of(LATENCY_WINDOW_US)).agg(
        f.min("at_us").alias("at"), f.max("latency_us").alias("us")
    )
    return [LatencyWindow(row["at"], row["us"]) for row in worst.orderBy("at").collect()]


def _latency(markers: DataFrame, failed: Sequence[Row], step_us: int) -> Row:
    """Latency percentiles by scope. ``overall`` excludes the warm-up, ``undisturbed`` also the time from each failure
    until its recovery."""
    at_us = f.col("at_us")
    warm = at_us >= WARM_UP_US
    calm = warm
    for failure in failed:
        before = at_us < failure["at_s"] * 1e6
        healed_s = None if failure["recovery_ms"] is None else failure["at_s"] + failure["recovery_ms"] / 1e3
        calm = calm & (before if healed_s is None else before | (at_us > healed_s * 1e6))
    scopes = {
        "overall": f.when(warm, 0),
        "undisturbed": f.when(calm, 0),
        "per_second": f.when(at_us >= 0, tables.step_of(SECOND_US)),
        "per_step": f.when(at_us >= 0, tables.step_of(step_us)),
    }
    found = _rows(tables.percentiles(markers, {name: group.cast("bigint") for name, group in scopes.items()}))
    return {
        "overall": next((_in_ms(row) for row in found if row["scope"] == "overall"), None),
        "undisturbed": next((_in_ms(row) for row in found if row["scope"] == "undisturbed"), None),
        "per_second": [_at_second(row, SECOND_US) for row in found if row["scope"] == "per_second"],
        "per_step": [_at_second(row, step_us) for row in found if row["scope"] == "per_step"],
    }


def _at_second(row: Row, step_us: int) -> Row:
    return {"at_s": row["number"] * step_us / 1e6, **_in_ms(row)}


def _in_ms(row: Row) -> Row:
    named = {name: row[name] / 1000 for name in row if name.startswith("p") or name == "max"}
    return {**named, "markers": row["markers"]}


# ---- throughput and bytes


def _throughput(seconds: Sequence[Row]) -> Row:
    """The events that sources read, without those reread in a replay."""
    by_second: dict[int, list[float]] = {}
    for row in seconds:
        new, again = by_second.setdefault(row["step"], [0.0, 0.0])
        by_second[row["step"]] = [new + row["rows_in"] - row["rows_replayed"], again + row["rows_replayed"]]
    new_events = itertools.accumulate((new for _, (new, _) in sorted(by_second.items())), initial=0.0)
    ends = (*sorted(by_second), max(by_second, default=0) + 1)
    read = [RateSample(second * SECOND_US, round(events)) for second, events in zip(ends, new_events, strict=True)]
    found = throughput(read, 0)
    return {
        "events": found["events"],
        "steady_events_per_s": found["steady_events_per_s"],
        "per_second": [
            {"at_s": second, "events": round(new), "replayed": round(again)}
            for second, (new, again) in sorted(by_second.items())
            if second >= 0
        ],
    }


def _bytes(seconds: Sequence[Row]) -> Row:
    by_second: dict[int, list[float]] = {}
    for row in seconds:
        data, determinants = by_second.setdefault(row["step"], [0.0, 0.0])
        by_second[row["step"]] = [data + row["data_bytes"], determinants + row["determinant_bytes"]]
    data, determinants = (sum(column) for column in zip((0, 0), *by_second.values(), strict=True))
    return {
        "data": round(data),
        "determinants": round(determinants),
        "overhead": overhead(data, determinants),
        "per_second": [
            {"at_s": second, "data": round(sent), "determinants": round(logged)}
            for second, (sent, logged) in sorted(by_second.items())
            if second >= 0
        ],
    }


def _levels(found: DataFrame, step_us: int) -> list[Row]:
    rows = _rows(found.where("step >= 0").orderBy("step", "vertex"))
    return [{"at_s": row.pop("step") * step_us / 1e6, **row} for row in rows]


def _totals(seconds: Sequence[Row], vertices: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The totals of each vertex, in the order of the plan."""
    return [
        {
            "vertex": vertex["name"],
            "tasks": vertex["parallelism"],
            **{name: round(sum(row[name] for row in seconds if row["vertex"] == vertex["name"])) for name in _TOTALS},
        }
        for vertex in vertices
    ]


# ---- checkpoints and failures


def _checkpoints(reported: Sequence[Row]) -> Row:
    completed = [row for row in reported if row["what"] == "CheckpointCompleted"]
    durations = [row["duration_ms"] for row in completed]
    return {
        "completed": len(completed),
        "aborted": sum(row["what"] == "CheckpointAborted" for row in reported),
        "skipped": sum(row["what"] == "CheckpointSkipped" for row in reported),
        **durations_ms(durations),
        "bytes": sum(row["bytes"] for row in completed),
        "all": [
            {
                "checkpoint": row["checkpoint"],
                "triggered_s": row["at_us"] / 1e6 - row["duration_ms"] / 1e3,
                "completed_s": row["at_us"] / 1e6,
                "duration_ms": row["duration_ms"],
                "bytes": row["bytes"],
            }
            for row in completed
        ],
    }


def _failures(found: DataFrame, windows: Sequence[LatencyWindow]) -> list[Row]:
    rows = _rows(found)
    healed = healings([(row["failed_us"], row["effect_us"]) for row in rows], windows)
    return [_failure(row, healing) for row, healing in zip(rows, healed, strict=True)]


def _failure(row: Row, healing: Healing) -> Row:
    failed_us, detected_us = row["failed_us"], row["detected_us"]

    def after_ms(at_us: int | None) -> float | None:
        return span_ms(failed_us, at_us)

    return {
        "task": f"{row['vertex']}[{row['index']}]",
        "how": row["how"],
        "at_s": failed_us / 1e6,
        "detected_ms": after_ms(detected_us),
        "activated_ms": after_ms(row["activated_us"]),
        "replayed_ms": after_ms(row["replayed_us"]),
        "first_new_effect_ms": after_ms(row["effect_us"]),
        "restart_ms": restart_ms(detected_us, row["effect_us"]),
        "recovery_ms": recovery_ms(failed_us, healing.recovered_us),
        "rows_replayed": row["rows_replayed"] or 0,
        "latency_before_ms": None if healing.normal_us is None else healing.normal_us / 1000,
        "latency_worst_ms": None if healing.worst_us is None else healing.worst_us / 1000,
    }
