"""A task that charges is killed again and again: each charge has happened once, as its service finds out."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py import Context, Job, Record, service
from clonos_py.connectors import FileSink, read_results
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.paced_rows import PacedRows

pytestmark = pytest.mark.ray

ROWS = 10_000


class Order(Record):
    id: int
    folder: str


class Charged(Record):
    id: int
    again: bool


@service
def charge() -> Iterator[Callable[[str, int], bool]]:
    """A file for each charge of an order, in the folder of the order."""

    def charged(folder: str, order: int) -> bool:
        Path(folder, str(order)).mkdir(exist_ok=True)
        Path(folder, str(order), uuid.uuid4().hex).touch()
        return False

    yield charged


@service
def receipt() -> Iterator[Callable[[str, int], bool | None]]:
    yield lambda folder, order: True if list(Path(folder).glob(f"{order}/*")) else None


def charged(order: Order, ctx: Context) -> Charged:
    return Charged(order.id, ctx.call(charge, order.folder, order.id, reconcile=receipt))


@pytest.mark.thorough
def test_each_order_is_charged_once_although_the_task_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    effects, out = tmp_path / "effects", str(tmp_path / "out")
    effects.mkdir()
    orders = pa.table({"id": range(ROWS), "folder": [str(effects)] * ROWS}).cast(Order.schema())
    job = Job("charges")
    read = job.source(PacedRows(orders, Order, 3.0)).named("orders").rebalance()
    read.map(charged).named("charged").rebalance().sink(FileSink(out)).named("out")
    kills = ["charged[0]@900ms", "charged[0]@1500ms", "charged[0]@2s"]
    settings = {"runtime": "ray", "parallelism": 1, "checkpoint_interval": "300ms", "kills": kills}
    events: list[Event] = []
    run_job(job, resolve(command_line=settings), lambda at_us, event: events.append(event))
    assert sum(isinstance(event, TaskFailed) for event in events) == len(kills)
    assert Counter(row["id"] for row in read_results(out)) == Counter(range(ROWS))
    assert {len(list(order.iterdir())) for order in effects.iterdir()} == {1}
