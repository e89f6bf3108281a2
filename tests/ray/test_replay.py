"""Nexmark queries that recorded what they did on Ray, killed, stopped and resumed: replays of their intervals."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import clonos_py
from clonos_py import Job
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.replay.run import RecordedJob
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.protocols import INDUCED, UNALIGNED, UNCOORDINATED
from clonos_py.settings.resolution import resolve

pytestmark = [pytest.mark.ray, pytest.mark.thorough]

EVENTS, RATE, INTERVALS = 300_000, 40_000, 20
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "q3": ("join[0]", {}),
    "q5": ("counts[1]", {"guarantee": "exactly-once", "sharing_depth": 0}),
    "q8": ("join[1]", {"protocol": UNCOORDINATED.name}),
    "q11": ("sessions[0]", {"protocol": UNALIGNED.name, "standby_feed": "100ms"}),
    "q12": ("counts[0]", {"protocol": INDUCED.name, "guarantee": "exactly-once", "sharing_depth": 0}),
}
"""By query: the task that is killed besides a source, and settings. Without determinants a failure is a rollback."""


def _job(query: str) -> Job:
    return build(query, NexmarkSource(events=EVENTS, rate=RATE, partitions=2), BlackholeSink())


@pytest.mark.parametrize("query", CASES)
def test_replays_of_twenty_intervals_are_identical(cluster: Cluster, query: str, tmp_path: Path) -> None:
    killed, given = CASES[query]
    folder = str(tmp_path / "checkpoints")
    shared = {"parallelism": 2, "checkpoint_interval": "500ms", "checkpoints": folder, "record": "48s", **given}
    stop, completed = StopSwitch(), 0

    def stopping(at_us: int, event: Event) -> None:
        nonlocal completed
        completed += isinstance(event, CheckpointCompleted)
        if completed == 6:
            stop.request()

    kills = (f"{killed}@1s", "source-nexmark[0]@2s")
    run_job(_job(query), resolve(command_line={**shared, "kills": kills}), stopping, stop)
    run_job(_job(query), resolve(command_line={**shared, "kills": (f"{killed}@1s",)}))
    recorded = RecordedJob(_job(query), folder)
    assert len({manifest.run for manifest in recorded.manifests}) == 2
    whole = clonos_py.replay(_job(query), folder)
    assert whole.identical, whole.report.differences
    draw = random.Random(query)
    bases, last = recorded.store.bases(), recorded.manifests[-1].checkpoint
    for _ in range(INTERVALS):
        begin = draw.choice([base.checkpoint for base in bases if base.checkpoint < last])
        end = draw.choice([m.checkpoint for m in recorded.manifests if m.checkpoint > begin])
        found = clonos_py.replay(_job(query), folder, checkpoint=begin, until=end)
        assert found.identical, (begin, end, found.report.differences)
