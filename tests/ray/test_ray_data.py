"""Datasets of Ray Data as sources, and the rows of a job as a dataset."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import ray
import ray.data

from clonos_py import Job, col
from clonos_py.connectors import FileSink, RayDataset, read_results
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import LastRead, Read
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from clonos_py.testing import check_source
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.connectors.test_sources import opened

pytestmark = pytest.mark.ray


def items(count: int, blocks: int) -> ray.data.Dataset:
    rows = [{"number": one.number, "text": one.text, "other": 1.5} for one in ITEMS[:count]]
    return ray.data.from_arrow(pa.Table.from_pylist(rows), override_num_blocks=blocks)


def test_each_block_is_read_once_although_tasks_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    """The first part reads it in this process, from every position."""
    check_source(RayDataset(items(40, blocks=3), Item), ITEMS[:40])
    dataset = items(len(ITEMS), blocks=7)
    copy_with_kills(RayDataset(dataset, Item), FileSink(tmp_path / "out"), tmp_path / "checkpoints", runtime="ray")
    assert Counter(row["number"] for row in read_results(tmp_path / "out")) == Counter(range(len(ITEMS)))


def test_a_dataset_that_gives_other_blocks_when_a_run_resumes_is_refused(cluster: Cluster) -> None:
    first = RayDataset(items(40, blocks=1), Item)
    read = opened(first, read_rows=10).poll(0)
    assert isinstance(read, Read)
    others = ray.data.from_arrow(pa.Table.from_pylist([{"number": n, "text": "x"} for n in range(40)]))
    second = RayDataset(others, Item)
    changed = opened(second)
    changed.recall(lambda number: LastRead(read.start, read.stop, read.checksum, 0))
    changed.seek({0: read.stop})
    with pytest.raises(SourceError, match="block 0 of the dataset was replaced or written again"):
        changed.poll(0)


def test_what_cannot_be_read_is_one_line(cluster: Cluster) -> None:
    def fails(row: dict[str, object]) -> dict[str, object]:
        raise ValueError("no such model")

    with pytest.raises(SourceError, match="the dataset has no column 'number'; it has id"):
        RayDataset(ray.data.range(3), Item).resolve()
    with pytest.raises(SourceError, match=r"the dataset cannot be executed \(.*no such model"):
        RayDataset(items(3, 1).map(fails), Item).resolve()
    with pytest.raises(GraphError, match="list is no dataset: give what"):
        RayDataset([], Item)  # type: ignore[arg-type]


def scored(dataset: ray.data.Dataset, folder: str) -> Job:
    job = Job("scored")
    items = job.source(RayDataset(dataset, Item)).named("items")
    items.filter(col("number") < 20).sink(FileSink(folder, "parquet")).named("out")
    return job


def test_the_example_reads_a_dataset_in_one_process(cluster: Cluster, tmp_path: Path) -> None:
    run_job(scored(items(40, 3), f"{tmp_path}/rows"), resolve(command_line={"runtime": "local"}))
    assert sorted(row["number"] for row in read_results(f"{tmp_path}/rows")) == list(range(20))


@pytest.mark.thorough
def test_the_rows_of_a_job_are_a_dataset(cluster: Cluster, tmp_path: Path) -> None:
    run_job(scored(items(40, 3), f"{tmp_path}/rows"), resolve(command_line={"runtime": "local"}))
    assert ray.data.read_parquet(f"{tmp_path}/rows").sum("number") == sum(range(20))
