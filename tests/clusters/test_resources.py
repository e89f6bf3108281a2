"""A cluster whose nodes differ: tasks go where there is what they need, get their GPU, and keep to their memory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.start_raylets import Raylets, raylets
from tests.clusters.test_stop_command import actors
from tests.ray.numbers_command import CLONOS
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.ray

SMALL = ("--num-cpus=1", "--num-gpus=0", "--memory=2000000000")
LARGE = ("--num-cpus=2", "--num-gpus=1", "--memory=1500000000")
ROWS = 60
JOB = """
import os, time
from pathlib import Path
from clonos_py import Job, Record
from clonos_py.connectors import FileSink, MemorySource

class Row(Record):
    id: int

class Seen(Record):
    id: int
    devices: str

FOLDER = Path(__file__).parent
HOARDED = []

def see(row: Row) -> Seen:
    time.sleep(0.02)
    while row.id > 30 and not (FOLDER / "released").exists():
        time.sleep(0.02)
    if row.id > 20 and not (FOLDER / "hoarded").exists():
        HOARDED.append(b"x" * (32 << 20))
    return Seen(row.id, os.environ.get("CUDA_VISIBLE_DEVICES", "none"))

def job(total: int, cpus: float = 0.5, memory: str = "300MiB", gpus: float = 1, alone: bool = False) -> Job:
    job = Job("seeing")
    source = job.source(MemorySource([Row(number) for number in range(total)])).named("rows")
    rows = source if alone else source.rebalance()
    seen = rows.map(see).named("see").resources(cpus=cpus, memory=memory, gpus=gpus)
    seen.sink(FileSink(FOLDER / "out")).named("out")
    return job
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        with raylets(1, head=SMALL) as found:
            found.add(*LARGE)
            yield found


class Commands:
    """Runs the job above, which stops in its middle until it is released, and keeps to its memory from the start."""

    def __init__(self, cluster: Raylets, folder: Path) -> None:
        self.cluster, self.folder, self.log = cluster, folder, folder / "log"
        (folder / "job.py").write_text(JOB)
        (folder / "hoarded").touch()

    def start(self, *settings: str) -> subprocess.Popen[bytes]:
        command = [CLONOS, "run", "job.py", "--total", str(ROWS), "--address", self.cluster.address, *settings]
        with self.log.open("wb") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def __call__(self, *settings: str) -> int:
        return self.start(*settings).wait(WAIT_S_MAX)

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def of_detached(self, *words: str) -> str:
        """What a command prints of the detached run."""
        command = [CLONOS, *words, "seeing", "--address", self.cluster.address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX)
        return done.stdout

    def release(self) -> None:
        (self.folder / "released").touch()


@pytest.fixture
def clonos(cluster: Raylets, tmp_path: Path) -> Commands:
    return Commands(cluster, tmp_path)


@pytest.mark.parametrize(
    ("asked", "each"),
    [
        (("--cpus", "3"), "it needs 3 cpus, 300MiB memory, 1 gpu, which no node has; nodes have: "),
        (("--memory", "20GiB"), "it needs 0.5 cpus, 20GiB memory, 1 gpu, which no node has; nodes have: "),
        (("--gpus", "2"), "it needs 0.5 cpus, 300MiB memory, 2 gpus, which no node has; nodes have: "),
        (
            ("--parallelism", "2"),
            "each of its 2 tasks needs 0.5 cpus, 300MiB memory, 1 gpu, which no node has beside the other tasks of the "
            "job; nodes have: ",
        ),
    ],
)
def test_what_fits_on_no_node_is_told_in_one_line_before_anything_starts(
    clonos: Commands, asked: tuple[str, ...], each: str
) -> None:
    assert clonos(*asked) == 1
    assert clonos.printed.startswith(f"error: there is no room for 'out' (which runs see, out): {each}")
    assert clonos.printed.count("\n") == 1
    assert "2 cpus, 1.397GiB memory, 1 gpu" in clonos.printed
    assert not (clonos.folder / "out").exists()


def test_a_task_gets_its_gpu_and_one_that_outgrows_its_memory_fails_alone(clonos: Commands) -> None:
    (clonos.folder / "hoarded").unlink()
    running = clonos.start()
    wait_until(lambda: "may hold 300MiB" in clonos.printed, shown=lambda: clonos.printed)
    (clonos.folder / "hoarded").touch()
    clonos.release()
    assert running.wait(WAIT_S_MAX) == 0, clonos.printed
    failures = [line for line in clonos.printed.splitlines() if " failed: " in line]
    assert failures
    for line in failures:
        assert line.startswith("warning: out[0] failed: out[0]: its process holds 3"), "no other process failed"
    seen = visible_rows(clonos.folder / "out")
    assert sorted(row["id"] for row in seen) == list(range(ROWS))
    assert {row["devices"] for row in seen} == {"0"}
    assert "a standby of out[0] waits until a node has room: it needs 300MiB memory, 1 gpu, and nodes" in clonos.printed


@pytest.mark.thorough
def test_a_job_whose_task_always_outgrows_its_memory_fails(clonos: Commands) -> None:
    (clonos.folder / "hoarded").unlink()
    assert clonos("--standbys", "0") == 1
    *_, last = clonos.printed.splitlines()
    assert last.startswith("error: out[0]: its process holds 3")
    assert " of memory and may hold 300MiB: give its operators more with resources(memory=...)" in last


@pytest.mark.thorough
def test_a_task_whose_node_is_lost_waits_for_one_with_room(cluster: Raylets, clonos: Commands) -> None:
    running = clonos.start("--checkpoint-interval", "500ms")
    wait_until(lambda: "a standby of out[0] waits" in clonos.printed, shown=lambda: clonos.printed)
    cluster.lose()
    wait_until(
        lambda: "warning: out[0] waits until a node has room: it" in clonos.printed, shown=lambda: clonos.printed
    )
    clonos.release()
    cluster.add(*LARGE)
    assert running.wait(WAIT_S_MAX) == 0, clonos.printed
    assert sorted(row["id"] for row in visible_rows(clonos.folder / "out")) == list(range(ROWS))


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["out", "rows"])
def test_a_driver_may_die_while_a_task_waits_for_room(cluster: Raylets, clonos: Commands, task: str) -> None:
    """Whether Ray has put the driver on the node that is lost, or not. ``rows``: all tasks of the job were there."""
    folders, alone = ("--checkpoints", str(clonos.folder / "checkpoints")), ("--alone",) if task == "rows" else ()
    patient = ("--start-timeout", "600s")
    assert clonos("--detach", "--checkpoint-interval", "500ms", *patient, *folders, *alone) == 0, clonos.printed
    wait_until(lambda: f"a standby of {task}[0] waits" in clonos.of_detached("logs"))
    cluster.lose()

    def waits() -> bool:
        return f"warning: {task}[0] waits until a node has room: it needs 0.5 cpus" in clonos.of_detached("logs")

    wait_until(waits, shown=lambda: clonos.of_detached("logs"))
    (driver,) = actors(cluster, "DriverActor")
    os.kill(driver, signal.SIGKILL)
    wait_until(lambda: actors(cluster, "DriverActor") not in ([], [driver]))
    wait_until(waits, shown=lambda: clonos.of_detached("logs"))
    clonos.release()
    cluster.add(*LARGE)
    wait_until(lambda: "seeing is finished" in clonos.of_detached("status"), shown=lambda: clonos.of_detached("logs"))
    assert sorted(row["id"] for row in visible_rows(clonos.folder / "out")) == list(range(ROWS))
