"""A disk that is full for a while loses no row, under any checkpoint protocol (E4, E5, E9): the disk is real, and
schedules are simulated."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.job.events import EndJob, JobPolicy
from clonos_py.model.coordinator_events import CheckpointCompleted, CoordinatorEvent, SpillFailed, TaskLost
from clonos_py.model.retention import Spill
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.sim.faults import Faults
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.spill import FileShelf, SpilledAt
from clonos_py.runtime.world.world import World, WorldSettings
from clonos_py.settings.protocols import INDUCED, UNALIGNED, UNCOORDINATED
from tests.witness import WitnessJob, WitnessLedger, disagreements

SEEDS = int(os.environ.get("SIMULATED_SEEDS", "400")) // 200
JOBS = {
    "unaligned": WitnessJob(total=200, protocol=UNALIGNED),
    "unaligned, rolled back": WitnessJob(total=200, protocol=UNALIGNED, sharing_depth=0, rollback=True),
    "uncoordinated": WitnessJob(total=200, protocol=UNCOORDINATED),
    "uncoordinated, rolled back": WitnessJob(total=200, protocol=UNCOORDINATED, sharing_depth=0, rollback=True),
    "communication-induced": WitnessJob(total=200, protocol=INDUCED),
}
SOME_SPILL = ("unaligned, rolled back", "uncoordinated")
any_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
Hook = Callable[["FullDisk", World], None]


class CountingShelf(FileShelf):
    """Counts the writes."""

    def __init__(self, disk: FullDisk, folder: Path) -> None:
        super().__init__(folder)
        self._disk = disk

    def write(self, body: pa.Buffer | pa.RecordBatch) -> SpilledAt:
        place = super().write(body)
        self._disk.spilled += 1
        return place


class FullDisk:
    """A job whose retained frames are on a small disk, perhaps with its checkpoints and other files."""

    def __init__(
        self, seed: int, job: WitnessJob, folder: Path, checkpoints: Path, limits: ChannelLimits, interval_us: int
    ) -> None:
        self._random, self._job, self._folder, self._limits = random.Random(seed), job, folder, limits
        self.ledger = WitnessLedger()
        self.happened: list[CoordinatorEvent] = []
        self.spilled = 0
        self._store = CheckpointStore(str(checkpoints / f"checkpoints-{seed}"), "witness")
        self._ballast = folder / "ballast"
        self._policy = JobPolicy(checkpoint_interval_us=interval_us, lineage=f"seed-{seed}")

    @property
    def full(self) -> bool:
        return self._ballast.exists()

    def fill(self) -> None:
        free = os.statvfs(self._folder)
        self._ballast.write_bytes(bytes(free.f_bavail * free.f_frsize))

    def make_room(self) -> None:
        self._ballast.unlink()

    def count(self, kind: type[CoordinatorEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.happened)

    def run(self, hook: Hook, kills: int = 0) -> EndJob:
        time, plan = VirtualTime(self._random), self._job.plan(self.ledger)
        faults = Faults(self._random, kills, [])

        def before(world: World) -> None:
            hook(self, world)
            faults(world)

        world = World(
            plan,
            self._store,
            time,
            lambda task: SimulatedEnvironment(time.now_us, self._random, self._store, task),
            WorldSettings(self._policy, self._limits, 2_000, events_max=400_000, shelf=self._shelf),
            lambda time_us, event: self.happened.append(event),
            hook=before,
        )
        return world.run()

    def _shelf(self, number: int) -> FileShelf:
        return CountingShelf(self, self._folder)

    def check(self) -> None:
        assert not disagreements(self.ledger, self._job.total)


@any_job
def test_a_job_that_cannot_write_snapshots_ends_and_resumes_when_the_disk_has_room(
    job: WitnessJob, small_disk: Path
) -> None:
    def fill_once_a_checkpoint_is_there(disk: FullDisk, world: World) -> None:
        if disk.count(CheckpointCompleted) and not disk.full:
            disk.fill()

    for seed in range(SEEDS):
        disk = FullDisk(seed, job, small_disk, small_disk, ChannelLimits(window=4), interval_us=10_000)
        ended = disk.run(fill_once_a_checkpoint_is_there, kills=seed % 2)
        assert ended.error == "CheckpointError", f"seed {seed}: {ended}"
        assert "the checkpoint folder is full: free space" in ended.message
        completed = disk.count(CheckpointCompleted)
        disk.make_room()
        assert disk.run(lambda disk, world: None, kills=1) == EndJob(), f"seed {seed}"
        assert disk.count(CheckpointCompleted) > completed
        disk.check()
        shutil.rmtree(small_disk / f"checkpoints-{seed}")


@pytest.mark.parametrize(
    "job",
    [pytest.param(job, marks=[pytest.mark.thorough] * (name not in SOME_SPILL), id=name) for name, job in JOBS.items()],
)
def test_a_job_that_cannot_spill_reports_it_and_spills_again_when_the_disk_has_room(
    job: WitnessJob, small_disk: Path, tmp_path: Path
) -> None:
    spilled: list[int] = []

    def make_room_after_a_while(disk: FullDisk, world: World) -> None:
        if disk.full and disk.count(SpillFailed) > 2:
            disk.make_room()
            spilled.append(disk.spilled)

    limits = ChannelLimits(window=4, budget_bytes=20_000, policy=Spill.BUFFER)
    again = lost = 0
    for seed in range(SEEDS):
        spilled.clear()
        disk = FullDisk(seed, job, small_disk, tmp_path, limits, interval_us=60_000_000)
        disk.fill()
        ended = disk.run(make_room_after_a_while, kills=2)
        if ended.error is not None:  # its reserve was spent before it could write again
            assert ended.error == "CapacityError", f"seed {seed}: {ended}"
            assert "disk for retained frames" in ended.message
            if disk.full:
                disk.make_room()
                spilled.append(disk.spilled)
            ended = disk.run(make_room_after_a_while, kills=2)
        assert ended == EndJob(), f"seed {seed}: {ended}"
        assert disk.count(SpillFailed)
        lost += disk.count(TaskLost)
        again += disk.spilled > spilled[0]
        disk.check()
    assert again
    assert lost
