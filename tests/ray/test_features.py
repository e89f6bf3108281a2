"""Aggregates over last rows, and windows whose results are a table, on real actors with real SIGKILLs."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Instant, Job, Record, col, count, cumulative, every, last
from clonos_py.connectors import FileSink, MemorySource, read_results
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.observed import killed

pytestmark = pytest.mark.ray

ROWS, KEYS, STEP_US, SPAN_US, SIZE_US = 12_000, 30, 1_000_000, 200_000_000, 1_000_000_000


class Payment(Record):
    id: int
    key: int
    cents: int
    at: Instant


PAYMENTS = [Payment(n, n * 7 % KEYS, n * 37 % 900, n * STEP_US - n % 4 * STEP_US + 10 * SIZE_US) for n in range(ROWS)]


def paced(row: Payment) -> Payment:
    time.sleep(0.0002)
    return row


def job(folder: Path) -> Job:
    made = Job("features")
    payments = made.source(MemorySource(PAYMENTS, partitions=2), event_time="at", out_of_order="10s").named("payments")
    featured = payments.map(paced).key_by("key").over(last("200s"))
    features = featured.aggregate(n=count(), spent=col("cents").sum(), spread=col("cents").var(ddof=0)).named("over")
    features.sink(FileSink(str(folder / "features"))).named("features")
    growing = features.key_by("key").window(cumulative("1000s", "500s"), emit=every("50ms", processing_time=True))
    sums = growing.aggregate(n=count(), most=col("spent").max(), about=col("cents").approx_count_distinct())
    sums.named("growing").changes(kind="change").sink(FileSink(str(folder / "sums"))).named("sums")
    return made


@pytest.mark.thorough
def test_killed_tasks_go_on_with_the_rows_that_later_ones_ask_for(cluster: Cluster, tmp_path: Path) -> None:
    heard: list[Event] = []
    given = {
        "parallelism": 2, "checkpoint_interval": "500ms", "checkpoints": str(tmp_path / "checkpoints"),
        "kills": ["over[0]@900ms", "growing[1]@1500ms"],
    }  # fmt: skip
    run_job(job(tmp_path), resolve(command_line=given), lambda at_us, event: heard.append(event))
    assert len(killed(heard)) == 2
    assert RolledBack not in map(type, heard)
    spent, expected = {}, {}
    before: defaultdict[int, list[Payment]] = defaultdict(list)
    for payment in sorted(PAYMENTS, key=lambda payment: payment.at):
        before[payment.key].append(payment)
        recent = [p.cents for p in before[payment.key] if p.at >= payment.at - SPAN_US]
        mean = sum(recent) / len(recent)
        spent[payment.id] = sum(recent)
        variance = sum((cents - mean) ** 2 for cents in recent) / len(recent)
        expected[payment.id] = (len(recent), sum(recent), pytest.approx(variance, abs=1e-6))
    rows = read_results(str(tmp_path / "features"))
    assert {row["id"]: (row["n"], row["spent"], row["spread"]) for row in rows} == expected
    assert len(rows) == ROWS
    windows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for payment in PAYMENTS:
        start = payment.at // SIZE_US * SIZE_US
        for end in (start + SIZE_US // 2, start + SIZE_US):
            if payment.at < end:
                windows[payment.key, end].append(spent[payment.id])
    assert _table(read_results(str(tmp_path / "sums"))) == {
        at: (len(found), max(found)) for at, found in windows.items()
    }


def _table(changes: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    """The last row of each key and window: the one with the most rows."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row in sorted(changes, key=lambda row: int(row["n"])):
        found[row["key"], row["window_end"]] = (row["n"], row["most"])
    return found
