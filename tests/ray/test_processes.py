"""The driver's threads and sockets with real processes' life, but in one Python process and without Ray."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors.digests import read_digest
from clonos_py.job.events import EndJob, Happening, JobPolicy, ProcessDied, Report
from clonos_py.job.machine import JobMachine
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.retention import Spill
from clonos_py.runtime.ray.job_loop import Ears, JobLoop
from clonos_py.runtime.ray.process import Deployment, Process
from clonos_py.runtime.transport.tls import TlsFiles
from clonos_py.task.pressure import LinkLimits
from tests.ray.counting_job import counting, expected_digest
from tests.unit.runtime.certificates import Authority


class Threads:
    """The platform of these tests: a process is a few threads."""

    def __init__(self, deployment: Deployment, loop: JobLoop) -> None:
        self._deployment, self._loop = deployment, loop
        self._processes: dict[int, Process] = {}

    def start(self, number: int, task: TaskId) -> None:
        node = f"node {number % 2}"
        process = Process(self._deployment, number, task, node, "127.0.0.1", self._loop.put)
        self._processes[number] = process
        process.start()

    def send(self, number: int, message: ToProcess) -> None:
        if number in self._processes:
            self._processes[number].deliver(message)

    def kill(self, number: int) -> None:
        if process := self._processes.pop(number, None):
            process.abandon()

    def crash(self, number: int) -> None:
        self.kill(number)
        self._loop.put(ProcessDied(number, "killed"))

    def close(self, patience_s: float) -> None:
        for number in list(self._processes):
            self.kill(number)


def run(
    plan: PhysicalPlan,
    folder: Path,
    kills: list[tuple[int, TaskId]],
    limits: LinkLimits = LinkLimits(),  # noqa: B008 - frozen
    tls: TlsFiles | None = None,
) -> tuple[EndJob | None, list[Report]]:
    reports: list[Report] = []
    counters: dict[TaskId, Mapping[str, Any]] = {}
    store = CheckpointStore(str(folder / "checkpoints"), plan.job)
    policy = JobPolicy(checkpoint_interval_us=400_000)
    machine = JobMachine(plan, policy, store.latest(), store.open_generation())

    def report(at_us: int, report: Report) -> None:
        reports.append(report)

    def count(task: TaskId, number: int, counts: Mapping[str, Any]) -> None:
        counters[task] = counts

    loop = JobLoop(machine, store, Ears(report, lambda at_us, task: None, count), kills=kills)
    with TemporaryDirectory(prefix="clonos-") as sockets:
        open_store = partial(CheckpointStore, str(folder / "checkpoints"), plan.job)
        deployment = Deployment(plan, open_store, b"secret", limits, 10_000, True, Path(sockets), tls)
        end = loop.run(Threads(deployment, loop))
    return end, reports


def test_a_job_runs_to_its_end_over_sockets(tmp_path: Path) -> None:
    end, reports = run(counting(str(tmp_path), total=2_000, rate=4_000), tmp_path, [])
    assert end == EndJob()
    assert read_digest(str(tmp_path / "rows")) == expected_digest(2_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
    assert Happening.CHECKPOINT_COMPLETED in [report.what for report in reports]
    assert threading.active_count() < 20


def test_every_task_dies_in_turn_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    kills = [
        (700_000, TaskId("count", 0)),
        (1_400_000, TaskId("numbers", 1)),
        (2_100_000, TaskId("audit", 0)),
    ]
    end, reports = run(counting(str(tmp_path), total=6_000, rate=2_000), tmp_path, kills)
    happened = [report.what for report in reports]
    assert end == EndJob()
    assert happened.count(Happening.REPLAYED) == 3
    assert Happening.ROLLED_BACK not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


@pytest.mark.parametrize("policy", [Spill.EPOCH, Spill.BUFFER, Spill.THRESHOLD])
def test_frames_replayed_from_disk_are_those_that_were_sent(tmp_path: Path, policy: Spill) -> None:
    kills = [(500_000, TaskId("count", 0)), (1_300_000, TaskId("audit", 1))]
    limits = LinkLimits(policy=policy, spill_bytes=1_000)
    end, reports = run(counting(str(tmp_path), total=4_000, rate=2_000), tmp_path, kills, limits)
    assert end == EndJob()
    assert [report.what for report in reports].count(Happening.STANDBY_PROMOTED) == 2
    assert read_digest(str(tmp_path / "rows")) == expected_digest(4_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_frames_are_made_again_for_receivers_that_died_and_a_source_goes_on_at_its_last_landmark(
    tmp_path: Path,
) -> None:
    plan = counting(str(tmp_path), total=6_000, rate=2_000)
    numbers, *others = plan.vertices
    regenerating = replace(plan, vertices=(replace(numbers, regenerates=True), *others))
    kills = [
        (500_000, TaskId("count", 0)),
        (1_100_000, TaskId("numbers", 1)),
        (1_700_000, TaskId("numbers", 0)),
        (1_700_000, TaskId("count", 1)),
    ]
    end, reports = run(regenerating, tmp_path, kills, LinkLimits(policy=Spill.REGENERATE))
    assert end == EndJob()
    assert [report.what for report in reports].count(Happening.STANDBY_PROMOTED) == 4
    assert Happening.ROLLED_BACK not in [report.what for report in reports]
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_tasks_die_and_nothing_is_lost_or_doubled_over_tls(tmp_path: Path) -> None:
    kills = [(500_000, TaskId("count", 0)), (1_300_000, TaskId("numbers", 1))]
    tls = Authority(tmp_path / "authority").files()
    end, reports = run(counting(str(tmp_path), total=4_000, rate=2_000), tmp_path, kills, tls=tls)
    assert end == EndJob()
    assert [report.what for report in reports].count(Happening.STANDBY_PROMOTED) == 2
    assert read_digest(str(tmp_path / "rows")) == expected_digest(4_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
