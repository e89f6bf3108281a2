"""What a run says about its checkpoint interval: how often tasks failed, how fast they recovered and replayed.

A report (``evaluation/nexmark/report.py``) and a trace (``observe/trace.py``) hold it. A report has a replay speed only
of a job that found its interval itself (``checkpoint_interval = auto``), since it has no rates of single tasks. The
work that a checkpoint costs is missing where tasks take snapshots alone. The time until a checkpoint is complete is
another quantity: tasks go on working meanwhile.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from clonos_py.evaluation.nexmark.report import FORMAT
from clonos_py.model.errors import SettingError
from clonos_py.observe.trace import HEADER, TABLES, read_header
from clonos_py.settings.definitions import Guarantee
from clonos_py.settings.kinds import DURATION

_ANOTHER_REMEDY = "name a report of `clonos nexmark run --report`, or a trace of `clonos run --trace`"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class MeasuredRun:
    """Means over a run. A quantity that it does not hold is None."""

    rolls_back: bool
    """Whether a failure rolled the job back; otherwise failures were local."""
    failures_per_s: float
    restart_s: float | None
    replay_speed: float | None
    lag_s: float | None
    """From the trigger of a checkpoint until it was complete, in the median."""
    interval_s: float | None
    cost_s: float | None = None
    """The work that a checkpoint costs."""


def measured(path: Path) -> MeasuredRun:
    """Reads a report or the folder of a trace. Raises SettingError if it is neither, is of another version, or nothing
    failed in it."""
    found = _of_trace(path) if path.is_dir() else _of_report(path)
    if found is None:
        raise SettingError(f"in {path} nothing failed, so it has no rate of failures: name a run with failures")
    return found


def rolls_back(settings: Mapping[str, str]) -> bool:
    """Whether a run with these settings, as a user writes them, uses rollback recovery (E2)."""
    return settings.get("guarantee") == Guarantee.EXACTLY_ONCE.value and settings.get("sharing_depth") == "0"


def _of_report(path: Path) -> MeasuredRun | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SettingError(f"{path} cannot be read as a report: {_ANOTHER_REMEDY}") from None
    if not isinstance(report, dict) or not {"settings", "failures", "checkpoints"} <= set(report):
        raise SettingError(f"{path} is no report of a run: {_ANOTHER_REMEDY}")
    if report.get("format") != FORMAT:
        raise SettingError(
            f"{path} is a report of format {report.get('format')}, this version reads {FORMAT}: run the query again"
        )
    back, failures = rolls_back(report["settings"]), report["failures"]
    if not failures:
        return None
    median_ms, chosen = report["checkpoints"]["median_ms"], report.get("interval") or {}
    cost_ms = report["checkpoints"].get("cost_ms")
    return MeasuredRun(
        rolls_back=back,
        failures_per_s=len(failures) / (report["seconds"] - report["deployed_s"]),
        restart_s=_mean_s(failure["restarted_ms" if back else "standby_activated_ms"] for failure in failures),
        replay_speed=None if back else chosen.get("replay_speed"),
        lag_s=None if median_ms is None else median_ms / 1e3,
        interval_s=_interval_s(report["settings"]) or chosen.get("interval_s"),
        cost_s=chosen.get("cost_s") or (cost_ms / 1e3 if cost_ms else None),
    )


# ---- traces


@dataclass(frozen=True)
class _TracedFailure:
    """``work_s``: how long the predecessor took for the replayed rows; None if it is not known."""

    activated_ms: float | None
    restarted_ms: float | None
    replay_s: float | None
    work_s: float | None


def _of_trace(path: Path) -> MeasuredRun | None:
    header = read_header(path)
    events, readings = _table(path, "events"), _table(path, "readings")
    begin_us = next((row["at_us"] for row in events if row["what"] == "Deployed"), 0)
    end_us = max(row["at_us"] for row in (*events, *readings, {"at_us": begin_us + 1}))
    failures = _traced_failures(events, _rates(readings))
    if not failures:
        return None
    completed = [row for row in events if row["what"] == "CheckpointCompleted"]
    durations_ms, costs_ms = [row["duration_ms"] for row in completed], [row.get("cost_ms") for row in completed]
    back = rolls_back(header["settings"])
    return MeasuredRun(
        rolls_back=back,
        failures_per_s=len(failures) / ((end_us - begin_us) / 1e6),
        restart_s=_mean_s(failure.restarted_ms if back else failure.activated_ms for failure in failures),
        replay_speed=None if back else _replay_speed(failures),
        lag_s=statistics.median(durations_ms) / 1e3 if durations_ms else None,
        interval_s=_interval_s(header["settings"]),
        cost_s=_cost_s(costs_ms),
    )


def _table(path: Path, name: str) -> list[Row]:
    """The rows of all parts of a table, in their order."""
    if name not in TABLES or not (parts := sorted((path / name).glob("part-*.parquet"))):
        return []
    try:
        return [row for part in parts for row in pq.read_table(part).to_pylist()]
    except OSError as problem:
        raise SettingError(f"{path / name} cannot be read ({problem}); {path / HEADER} names the run") from None


def _traced_failures(events: Sequence[Row], rates: Mapping[tuple[str, int], float]) -> list[_TracedFailure]:
    found = []
    for position, failed in enumerate(events):
        if failed["what"] == "TaskFailed":
            task = failed["vertex"], failed["index"]
            later = [row for row in events[position + 1 :] if row["at_us"] >= failed["at_us"]]
            again = (i for i, row in enumerate(later) if row["what"] == "TaskFailed" and _task(row) == task)
            steps = later[: next(again, len(later))]
            activated = next((row for row in steps if row["what"] == "StandbyActivated" and _task(row) == task), None)
            replayed = next((row for row in steps if row["what"] == "Replayed" and _task(row) == task), None)
            restarted = next((row for row in steps if row["what"] == "Restarted"), None)
            replay_s = work_s = None
            if activated and replayed:
                replay_s = (replayed["at_us"] - activated["at_us"]) / 1e6
                work_s = replayed["rows"] / rates[task] if rates.get(task) else None
            found.append(_TracedFailure(_ms(failed, activated), _ms(failed, restarted), replay_s, work_s))
    return found


def _rates(readings: Sequence[Row]) -> dict[tuple[str, int], float]:
    """By task: the rows per second that it took for the first time, over all of its processes, while it took any."""
    processes: dict[int, list[Row]] = {}
    for row in readings:
        if row["active"]:
            processes.setdefault(row["process"], []).append(row)
    totals: dict[tuple[str, int], tuple[float, float]] = {}
    for rows in processes.values():
        first, last = rows[0], next(row for row in rows if _new_rows(row) == _new_rows(rows[-1]))
        taken, seconds = totals.get(_task(first), (0.0, 0.0))
        totals[_task(first)] = (
            taken + _new_rows(last) - _new_rows(first),
            seconds + (last["at_us"] - first["at_us"]) / 1e6,
        )
    return {task: taken / seconds for task, (taken, seconds) in totals.items() if taken and seconds}


def _replay_speed(failures: Iterable[_TracedFailure]) -> float | None:
    known = [(f.work_s, f.replay_s) for f in failures if f.work_s and f.replay_s]
    return sum(work for work, _ in known) / sum(replay for _, replay in known) if known else None


def _new_rows(row: Row) -> int:
    return int(row["rows_in"] - row["rows_replayed"])


def _task(row: Row) -> tuple[str, int]:
    return row["vertex"], row["index"]


def _ms(failed: Row, step: Row | None) -> float | None:
    return None if step is None else (step["at_us"] - failed["at_us"]) / 1e3


def _mean_s(times_ms: Iterable[float | None]) -> float | None:
    known = [time for time in times_ms if time is not None]
    return statistics.mean(known) / 1e3 if known else None


def _cost_s(costs_ms: Iterable[float | None]) -> float | None:
    """The median; None if nothing was measured."""
    known = [cost_ms for cost_ms in costs_ms if cost_ms]
    return statistics.median(known) / 1e3 if known else None


def _interval_s(settings: Mapping[str, str]) -> float | None:
    found = settings.get("checkpoint_interval")
    return None if found in (None, "auto") else DURATION.parse(found) / 1e6
