"""Runs without tasks that a web server shows: the test makes their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from clonos_py.bench.ports import free_ports
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, Listener, Measured, ProcessReading, no_listener
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.web.controls import JobControls
from clonos_py.runtime.web.job_view import JobView
from clonos_py.runtime.web.server import serving as serving_run
from clonos_py.settings.definitions import Settings
from clonos_py.settings.kinds import ListenAddress
from tests.unit.task.plans import three

JOB = three().job
TOKEN = "0123456789abcdef"
SECOND = 1_000_000


class Served:
    """A run without tasks whose events the test makes."""

    def __init__(self, address: ListenAddress, listener: Listener, heard: list[Event], stop: StopSwitch) -> None:
        self.url = f"http://{address}"
        self.listen, self.heard, self.stop = listener, heard, stop
        self.kept: list[str] = []
        self.rescaled: list[tuple[int | None, dict[str, int]]] = []
        self.refusal: ClonosError | None = None
        """Raised by each request but a stop."""

    def keep(self, name: str) -> int:
        """The control for savepoints."""
        if self.refusal is not None:
            raise self.refusal
        self.kept.append(name)
        return 7

    def rescale(self, default: int | None, operators: Mapping[str, int]) -> None:
        """The control for the parallelism."""
        if self.refusal is not None:
            raise self.refusal
        self.rescaled.append((default, dict(operators)))

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=headers)

    def deployed(self, at_us: int = SECOND) -> None:
        self.listen(at_us, Deployed(3, 3))

    def measured(self, at_us: int, *readings: tuple[TaskId, int, ProcessCounters]) -> None:
        self.listen(at_us, Measured(tuple(ProcessReading(at_us, *reading) for reading in readings)))

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Values by name and labels; the parser checks the format."""
        text = self.get("/metrics").text
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()) if value != JOB)): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/api/v1/job").json()
        return found


@contextmanager
def serving(**changed: Any) -> Iterator[Served]:
    settings = replace(Settings(), **{"web": ListenAddress("127.0.0.1", free_ports(1)[0]), **changed})
    address = settings.web
    assert address is not None
    heard: list[Event] = []
    stop = StopSwitch()
    run = Served(address, no_listener, heard, stop)
    controls = JobControls(stop.request, run.keep, run.rescale)
    view = JobView(three(), settings, datetime.now(UTC))
    with serving_run(view, lambda _, event: heard.append(event), controls) as run.listen:
        yield run


def active(**counted: Any) -> ProcessCounters:
    return ProcessCounters(active=True, **counted)
