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


FREE_ROWS = 300
"""These are copied at once on Ray. The others wait until all tasks have been killed, however long that takes."""


def slowly(item: Item) -> Item:
    """So that tasks die while rows come, where one thread does all: the time of a kill counts as the rows do."""
    time.sleep(0.0005)
    return item


def copy_with_kills(source: SourceDefinition[Item], sink: SinkDefinition, checkpoints: Path, **settings: Any) -> None:
    """Copies all rows; a task of the source and one of the sink are killed while rows come."""
    all_killed, events = checkpoints.parent / "all-killed", list[Event]()

    def held(item: Item) -> Item:
        while item.number >= FREE_ROWS and not all_killed.exists():
            time.sleep(0.005)
        return item

    def listen(at_us: int, event: Event) -> None:
        events.append(event)
        if sum(isinstance(event, TaskFailed) for event in events) == len(KILLS):
            all_killed.touch()

    values = {"runtime": "local", "checkpoints": str(checkpoints), "checkpoint_interval": "50ms", "kills": KILLS}
    values |= settings
    job = Job("copy")
    rows = job.source(source).named("rows").map(slowly if values["runtime"] == "local" else held)
    rows.rebalance().sink(sink).named("out")
    run_job(job, resolve(command_line=values), listen)
    assert all_killed.exists()
