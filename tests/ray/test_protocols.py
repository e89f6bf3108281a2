"""Other checkpoint protocols on real actors: exactly once under any kill; unaligned checkpoints are short however long
the queues are."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import clonos_py
from clonos_py import Job, Record, col
from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import InjectedFault
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors import MemorySource, read_results
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    RolledBack,
    StandbyActivated,
    WentBack,
)
from clonos_py.model.operators import Sink
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.protocols import INDUCED, UNALIGNED, UNCOORDINATED
from clonos_py.settings.resolution import resolve
from tests.ray.killing import RATE, ROWS_MAX, Killer, PlannedFault
from tests.recorded import determinants_recorded

pytestmark = pytest.mark.ray

FAULTS = (
    (InjectedFault.NEIGHBOURS, ("enrich[0]", "rank[0]")),
    (InjectedFault.COORDINATOR, ()),
    (InjectedFault.DURING, ("rank[1]", "numbers[0]")),
    (InjectedFault.NEIGHBOURS, witnesses.TASKS),
)
OTHERS = (UNALIGNED.name, UNCOORDINATED.name, INDUCED.name)


@pytest.mark.parametrize(
    ("protocol", "faults"),
    [
        pytest.param(INDUCED.name, FAULTS[-1:], id=f"{INDUCED.name}, all tasks at once"),
        *(pytest.param(other, FAULTS, marks=pytest.mark.thorough, id=other) for other in OTHERS),
    ],
)
def test_both_witnesses_agree_with_other_protocols(
    protocol: str, faults: tuple[PlannedFault, ...], cluster: Cluster, tmp_path: Path
) -> None:
    """Only killed tasks are replaced, also after all were killed at once, and no snapshot is given up. The record has
    the whole log of each task, and its replay gives the same rows."""
    unpaced = tmp_path / "unpaced"
    killer = Killer(faults, unpaced)
    given = {"checkpoint_interval": "1s", "parallelism": 2, "protocol": protocol}
    given |= {"record": "1h", "checkpoints": str(tmp_path / "checkpoints")}
    settings = resolve(command_line={**given, "standbys_per_process": 1})  # else tasks fail together, and move apart
    with witnesses.answer_server() as server:
        causal = protocol == UNALIGNED.name
        job = witnesses.witnesses(server, str(tmp_path), ROWS_MAX, RATE, causal, unpaced=str(unpaced))
        run_job(job, settings, killer)
    recorded = determinants_recorded(CheckpointStore(str(tmp_path / "checkpoints"), job.name))
    assert min(recorded.values()) > 0
    replayed = clonos_py.replay(job, tmp_path / "checkpoints")  # the server is gone
    assert replayed.identical, replayed.report.differences
    for name in ("left", "right"):
        assert _by_id(replayed.rows[name].to_pylist()) == _by_id(read_results(str(tmp_path / name)))
    events = killer.events
    assert sum(killer.injector.counts.faults.values()) == len(faults)
    assert [event for event in events if isinstance(event, RolledBack)] == []
    assert len([event for event in events if isinstance(event, CoordinatorReplaced)]) == (faults is FAULTS)
    assert [event for event in events if isinstance(event, WentBack)] == []
    failures = [event for event in events if isinstance(event, TaskFailed)]
    failed = sorted(event.task for event in failures)
    silent = Counter(str(event.task) for event in failures if event.how.startswith("silent"))
    harmed, found = Counter(task for _, tasks in faults for task in tasks), Counter(map(str, failed))
    assert not harmed - found
    assert found - harmed <= silent, "on a busy machine a task may be declared dead"
    activated = sorted(event.task for event in events if isinstance(event, StandbyActivated))
    assert activated == failed, "attempts of other tasks than the killed ones changed"
    assert killer.total is not None
    assert witnesses.wrong(str(tmp_path), killer.total) is None


def _by_id(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=itemgetter("id"))


# ---- long queues

FRAME_ROWS, SINKS, SECONDS, FRAME_S = 64, 2, 7, 0.02


class Number(Record):
    n: int


class SlowSink(SinkDefinition):
    """Takes 20 ms for each frame."""

    def create(self, schema: pa.Schema) -> Sink:
        return _Slow()


class _Slow(Sink):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        time.sleep(FRAME_S * rows.num_rows / FRAME_ROWS)


def saturated() -> Job:
    """Three shuffles into the slow sink."""
    rows = round(SECONDS / FRAME_S) * FRAME_ROWS * SINKS
    job = Job("saturated")
    stream = job.source(MemorySource(pa.table({"n": range(rows)}), schema=Number, partitions=2)).named("numbers")
    for name in ("one", "two"):
        stream = stream.rebalance().filter(col("n") >= 0).named(name)
    stream.rebalance().sink(SlowSink()).named("slow")
    return job


def checkpointing_s(protocol: str) -> list[float]:
    """The durations of all checkpoints but the last, which waits for no queue."""
    events: list[Event] = []
    chosen = {"checkpoint_interval": "1s", "parallelism": 2, "protocol": protocol, "frame_rows": FRAME_ROWS}
    run_job(saturated(), resolve(command_line=chosen), lambda at_us, event: events.append(event))
    return [event.duration_ms / 1_000 for event in events if isinstance(event, CheckpointCompleted)][:-1]


@pytest.mark.thorough
def test_an_unaligned_checkpoint_does_not_wait_for_queues(cluster: Cluster) -> None:
    unaligned, aligned = checkpointing_s("unaligned"), checkpointing_s("aligned")
    assert len(unaligned) >= 3
    assert statistics.median(unaligned) <= statistics.median(aligned) / 4, f"{unaligned} {aligned}"
