"""A job of one process whose tasks are killed while it copies rows from a source to a sink."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from clonos_py import Job, Record
from clonos_py.connectors import SinkDefinition, SourceDefinition
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve

KILLS = ("rows[0]@100ms", "out[0]@400ms")


class Item(Record):
    number: int
    text: str


ITEMS = [Item(number, f"item {number}") for number in range(1_500)]


def slowly(item: Item) -> Item:
    """So that tasks die while rows come."""
    time.sleep(0.0005)
    return item


def copy_with_kills(source: SourceDefinition[Item], sink: SinkDefinition, checkpoints: Path, **settings: Any) -> None:
    """Copies all rows; a task of the source and one of the sink are killed."""
    job = Job("copy")
    job.source(source).named("rows").map(slowly).rebalance().sink(sink).named("out")
    events: list[Event] = []
    values = {"runtime": "local", "checkpoints": str(checkpoints), "checkpoint_interval": "50ms", "kills": KILLS}
    run_job(job, resolve(command_line=values | settings), lambda at_us, event: events.append(event))
    assert sum(isinstance(event, TaskFailed) for event in events) == len(KILLS)
