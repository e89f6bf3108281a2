"""Rows printed by workers are read on the terminal of the run."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from clonos_py import Job, Record
from clonos_py.bench.oracle import expected
from clonos_py.connectors import FileSink, MemorySource, PrintSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.coordinator_events import CheckpointCompleted, StandbyActivated
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve

pytestmark = pytest.mark.ray

EVENTS = 8_000


class Row(Record):
    n: int


def shown(row: Row) -> Row:
    print("PRINTED", row.n)  # noqa: T201 - this is what is tested
    logging.getLogger("udf").warning("LOGGED %s", row.n)
    if row.n == 1:
        engine = threading.Thread(target=logging.getLogger("clonos_py.transport").warning, args=("REFUSED",))
        engine.start()
        engine.join()
    return row


def test_what_functions_print_and_log_reaches_the_terminal_with_task_and_operator(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = Job("shown")
    job.source(MemorySource([Row(1), Row(2)])).map(shown).named("seen").sink(FileSink(str(tmp_path / "out")))
    job.run(log_format="json")
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    printed = sorted(line["message"] for line in found if line.get("event") == "FunctionPrinted")
    assert printed == [f"{word} {n}" for word in ("LOGGED", "PRINTED") for n in (1, 2)]
    (warned,) = [line for line in found if line.get("event") == "ProcessWarned"]
    assert (warned["level"], warned["job"]) == ("warning", "shown")
    assert warned["message"].endswith(": REFUSED")
    about = {
        (line["task"], line["attempt"]) for line in found if line.get("event") in ("FunctionPrinted", warned["event"])
    }
    assert {attempt for _, attempt in about} == {"1.1"}
    assert len(about) == 1, "all of one task"


def test_printed_rows_reach_the_terminal_although_their_task_is_killed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    source = NexmarkSource(events=EVENTS, rate=2_000, event_rate=500_000, partitions=2)
    heard: list[Event] = []
    settings = resolve({"kills": ["source-nexmark[0]@2s"], "checkpoint_interval": "500ms", "parallelism": 2})
    run_job(build("q2", source, PrintSink()), settings, lambda at_us, event: heard.append(event))
    lines = capsys.readouterr().out.splitlines()
    answers = sorted(expected("q2", source))
    assert sorted({tuple(json.loads(line).values()) for line in lines}) == answers
    assert [type(event) for event in heard].count(StandbyActivated) == 1
    assert any(isinstance(event, CheckpointCompleted) for event in heard)
    assert len(answers) > 20
    assert len(lines) < 2 * len(answers), "rows that a checkpoint covered are not printed again"
