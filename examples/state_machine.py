"""Checks that the events of each address follow a protocol, and alerts to those that its state does not allow.

clonos run examples/state_machine.py --runtime local --out alerts
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import Context, Job, Process, Record, state
from clonos_py.connectors import FileSink, FileSource

EVENTS = str(Path(__file__).parent / "data" / "protocol.jsonl")
NEXT = {
    "initial": {"a": "w", "c": "x"},
    "w": {"b": "y"},
    "x": {"b": "y", "d": "z"},
    "y": {"e": "z"},
    "z": {"g": "initial"},
}
"""By state the events that it allows, and the state that follows. The last event begins a new sequence."""


class Event(Record):
    address: int
    kind: str


class Alert(Event):
    current: str


class Protocol(Process[Event, Alert]):
    current: str = state("initial")

    def on_row(self, event: Event, ctx: Context) -> Iterator[Alert]:
        if event.kind in NEXT[self.current]:
            self.current = NEXT[self.current][event.kind]
        else:
            yield Alert.extend(event, current=self.current)


def job(events: str = EVENTS, out: str = "alerts") -> Job:
    job = Job("state-machine")
    read = job.source(FileSource(events, Event)).named("events")
    read.key_by("address").process(Protocol).named("protocol").sink(FileSink(out)).named("alerts")
    return job
