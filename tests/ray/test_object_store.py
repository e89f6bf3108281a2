"""A job on Ray with its checkpoints in an object store, which is cut off while processes are killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py.connectors import FileSink, FileSource, read_results
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    Finished,
    Replayed,
    RolledBack,
    StorageAwaited,
)
from clonos_py.model.ids import DEFAULT_NAMESPACE, TaskId
from clonos_py.model.record_codec import encode
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.run import run
from clonos_py.settings.resolution import resolve
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.outages import Outages
from tests.ray.counting_job import assert_exactly_once, counting
from tests.ray.places import places
from tests.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.ray


def kill_task(vertex: str) -> None:
    pid = next(place.pid for place in places("counting") if place.task == TaskId(vertex, 0) and place.active)
    os.kill(pid, signal.SIGKILL)


def kill_coordinator() -> None:
    ray = import_ray()
    os.kill(ray.get(ray.get_actor("counting", namespace=DEFAULT_NAMESPACE).pid.remote()), signal.SIGKILL)


def waits_or_recovers(outages: Outages) -> bool:
    """What was killed waits for the store, or does not need it."""
    return outages.lately(StorageAwaited, Replayed, CoordinatorReplaced)


def soak(folder: Path, server: S3Server, total: int, *during: Callable[[], None], lasts_us: int = 0) -> Outages:
    """Runs a job without standbys, whose replacements need what is stored."""
    outages = Outages(server, folder / "unpaced", during, waits_or_recovers, lasts_us)
    place = f"s3://{BUCKET}/{folder.name}"
    settings = {"checkpoint_interval": "1s", "checkpoints": place, "standbys": 0}
    try:
        run(counting(str(folder), total, 2_000, standbys=0), resolve(command_line=settings), outages)
    finally:
        server.heal()
    assert outages.of(Finished)
    assert not outages.of(RolledBack)
    assert min(outages.rows_meanwhile) > 0
    assert len(outages.of(CheckpointCompleted)) > len(during)
    assert_exactly_once(folder, total)
    return outages


def test_a_killed_task_waits_for_a_store_that_is_cut_off_and_then_goes_on(
    cluster: Cluster, object_store: S3Server, tmp_path: Path
) -> None:
    outages = soak(tmp_path, object_store, 30_000, partial(kill_task, "count"))
    waits, replayed = outages.of(StorageAwaited), outages.of(Replayed)
    assert waits or replayed, "on a slow machine the task may have had no state yet"
    for awaited in waits:
        assert awaited.task in (TaskId("count", 0), None), "None: a manifest had been handed to storage"
        assert "does not answer" in awaited.reason


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
def test_tasks_and_coordinators_are_killed_while_the_store_is_cut_off_again_and_again(
    cluster: Cluster, object_store: S3Server, tmp_path: Path
) -> None:
    tasks: list[Callable[[], None]] = [partial(kill_task, vertex) for vertex in ("count", "numbers", "audit")]
    kills = [tasks[0], kill_coordinator, *tasks[1:]]
    soak(tmp_path, object_store, 600_000, *kills, lasts_us=60_000_000)


@pytest.mark.thorough
def test_each_row_of_objects_is_in_an_object_once_although_processes_are_killed(
    cluster: Cluster, object_store: S3Server, tmp_path: Path
) -> None:
    place = f"s3://{BUCKET}/{tmp_path.name}"
    rows = pa.Table.from_batches([encode(ITEMS, Item.schema())])
    content = pa.BufferOutputStream()
    pq.write_table(rows, content, row_group_size=100)
    key = f"{tmp_path.name}/in/a.parquet"
    object_store.client().put_object(Bucket=BUCKET, Key=key, Body=content.getvalue().to_pybytes())
    source, sink = FileSource(f"{place}/in/*.parquet", Item), FileSink(f"{place}/out", compression="zstd")
    copy_with_kills(source, sink, tmp_path / "checkpoints", runtime="ray")
    assert Counter(row["number"] for row in read_results(f"{place}/out")) == Counter(range(len(ITEMS)))
