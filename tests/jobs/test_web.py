"""A job that runs with a web server: its own functions ask the server how the job is."""

from __future__ import annotations

import httpx

from clonos_py import Job
from clonos_py.bench.ports import free_ports
from clonos_py.connectors import MemorySink, MemorySource
from tests.jobs.rows import EVENTS, Event

_PORTS = free_ports(1)


def asked(event: Event) -> Event:
    base = f"http://localhost:{_PORTS[0]}"
    assert "clonos_standbys_ready" in httpx.get(f"{base}/metrics").text
    job = httpx.get(f"{base}/api/v1/job").json()
    return Event(event.id, event.key, event.value, event.at, job["job"])


def test_a_run_serves_its_state_while_it_runs() -> None:
    job, sink = Job("watched"), MemorySink()
    job.source(MemorySource(EVENTS)).map(asked).sink(sink)
    job.run(runtime="local", web=f"localhost:{_PORTS[0]}")
    assert {row.note for row in sink.rows(Event)} == {"watched"}
