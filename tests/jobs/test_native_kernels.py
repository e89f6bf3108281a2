"""Jobs with and without native kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py import Job, count
from clonos_py.columns.kernels import library
from clonos_py.connectors import BlackholeSink, MemorySource
from clonos_py.observe.events import Event, PlanWarning
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.jobs.rows import EVENTS


def counting() -> Job:
    job = Job("kernels", checkpoints="checkpoints")
    job.source(MemorySource(EVENTS)).key_by("key").aggregate(n=count()).at_end().sink(BlackholeSink())
    return job


def test_a_run_without_the_library_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def listen(at_us: int, event: Event) -> None:
        said.extend([event.reason] if isinstance(event, PlanWarning) else [])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(library, "_found", lambda: (None, "there are no native kernels"))
    run_job(counting(), resolve(command_line={"runtime": "local"}), listen)
    assert said == ["there are no native kernels"]
