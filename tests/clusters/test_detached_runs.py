"""A detached run on a cluster: it outlives the command that has started it, and each of its own processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from clonos_py.bench.ports import free_ports
from clonos_py.checkpoint.storage import CheckpointStore
from deploy.start_raylets import Raylets, raylets
from tests.clusters.test_stop_command import actors
from tests.ray.numbers_command import CLONOS, JOB
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.ray

TOTAL = 100_000
FAILING = """
from clonos_py import Job, Record
from clonos_py.connectors import BlackholeSink, MemorySource

class Row(Record):
    value: int

def fails(row: Row) -> Row:
    raise ValueError("as it is written")

job = Job("numbers")
job.source(MemorySource([Row(1)])).map(fails).sink(BlackholeSink())
"""


class Commands:
    """Runs ``clonos`` for a cluster, in a folder with the job, and asks ``asker`` what is asked often."""

    def __init__(self, cluster: Raylets, asker: subprocess.Popen[str], folder: Path) -> None:
        self.cluster, self._asker, self.folder = cluster, asker, folder
        self.checkpoints = str(folder / "checkpoints")
        (folder / "job.py").write_text(JOB)
        (folder / "failing.py").write_text(FAILING)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [CLONOS, *words, "--address", self.cluster.address]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX)

    @property
    def deployment(self) -> list[str]:
        """The command that starts the job."""
        given = ["--folder", str(self.folder / "out"), "--total", str(TOTAL), "--parallelism", "2"]
        given += ["--unpaced", str(self.folder / "unpaced"), "--checkpoint-interval", "500ms"]
        return ["run", "job.py", *given, "--checkpoints", self.checkpoints, "--detach"]

    def deploy(self, *settings: str) -> subprocess.CompletedProcess[str]:
        return self(*self.deployment, *settings)

    def ask(self, question: str) -> Any:
        """See ``detached_asker``."""
        assert self._asker.stdin is not None
        assert self._asker.stdout is not None
        self._asker.stdin.write(json.dumps([question, "numbers"]) + "\n")
        self._asker.stdin.flush()
        return json.loads(self._asker.stdout.readline())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("status")
        return found

    def await_state(self, state: str) -> None:
        wait_until(lambda: self.status()["state"] == state, shown=lambda: (self.status(), self("logs", "numbers")))

    def await_processes(self, tasks: int) -> list[int]:
        """The processes of so many tasks and the one that all standbys share, which starts after them."""
        wait_until(lambda: len(self.actors("ProcessActor")) == tasks + 1)
        return self.actors("ProcessActor")

    def replaced(self, driver: int) -> None:
        """Kills the driver and waits for the next one."""
        os.kill(driver, signal.SIGKILL)
        wait_until(lambda: self.actors("DriverActor") not in ([], [driver]))

    def actors(self, name: str) -> list[int]:
        return actors(self.cluster, name)


class Web(NamedTuple):
    """The address at which a run answers those who have the token. ``settings``: for the run."""

    address: str
    token: str
    settings: Sequence[str]

    def asked(self, what: str, wanted: dict[str, Any]) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.post(f"http://{self.address}/api/v1/{what}", json=wanted, headers=headers, timeout=WAIT_S_MAX)


def served(folder: Path) -> Web:
    address, token, file = f"127.0.0.1:{free_ports(1)[0]}", "f" * 16, folder / "token"
    file.write_text(token)
    return Web(address, token, ["--web", address, "--web-token-file", str(file)])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        with raylets(1) as found:
            yield found


@pytest.fixture(scope="module")
def asker(cluster: Raylets) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.clusters.detached_asker", cluster.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def clonos(cluster: Raylets, asker: subprocess.Popen[str], tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(cluster, asker, tmp_path)
    yield commands
    commands.ask("remove")


def test_a_run_goes_on_without_its_command_its_driver_and_after_a_stop(clonos: Commands, tmp_path: Path) -> None:
    web = served(tmp_path)
    started = clonos.deploy("--log-format", "json", "--log-level", "info", *web.settings)
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("numbers runs; "), started.stdout
    refused = clonos.deploy()
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith("error: a job named 'numbers' is running on this cluster"), refused.stderr
    (driver,) = clonos.actors("DriverActor")
    for tasks, complaint in (("1000", "it must be from 1 to the 128 key groups"), ("none=2", "has no operator 'none'")):
        refused = clonos("rescale", "numbers", "--parallelism", tasks)
        assert (refused.returncode, refused.stdout, refused.stderr.count("error: ")) == (1, "", 1)
        assert complaint in refused.stderr.splitlines()[-1], "behind lines of the run, which goes on meanwhile"
    assert clonos.status()["state"] == "running"
    first = clonos.actors("ProcessActor")
    rescaled = clonos("rescale", "numbers", "--parallelism", "1", "--parallelism", "source-paced-numbers=2")
    named = "numbers runs with 1 tasks of each operator, 2 tasks of source-paced-numbers, after a pause of "
    assert rescaled.stdout.startswith(named), rescaled.stderr
    wait_until(lambda: not set(first) & set(clonos.actors("ProcessActor")))
    assert sorted(vertex["parallelism"] for vertex in clonos.status()["vertices"]) == [1, 2]
    processes = clonos.await_processes(1 + 2)
    wait_until(lambda: clonos.status()["checkpoints"]["completed"])
    told = map(json.loads, clonos.ask("lines"))
    taken = [line["time"] for line in told if line["message"].startswith("checkpoint ")]
    assert taken == sorted(taken), "also behind the change, with which the times of events begin again"

    clonos.replaced(driver)
    clonos.await_state("running")
    before = clonos.status()["checkpoints"]["completed"]
    wait_until(lambda: clonos.status()["checkpoints"]["completed"] > before)
    assert clonos.actors("ProcessActor") == processes, "no task was replaced"
    assert json.loads(clonos("status", "numbers", "--json").stdout)["recoveries"] == []
    assert "is running since" in clonos("status", "numbers").stdout
    listed = clonos("list")
    assert "numbers" in listed.stdout
    assert "running" in listed.stdout
    assert clonos.ask("orphans") == []
    logged = [json.loads(line) for line in clonos("logs", "numbers").stdout.splitlines()]
    assert any(line["job"] == "numbers" and line["message"].startswith("checkpoint ") for line in logged)
    kept = clonos("savepoint", "create", "numbers", "early")
    assert kept.stdout.startswith("savepoint 'early' is checkpoint "), kept.stderr
    again = clonos("savepoint", "create", "numbers", "early")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "savepoints are never overwritten, choose another name" in again.stderr

    assert web.asked("savepoint", {"name": "by-web"}).status_code == 201
    again_by_web = web.asked("savepoint", {"name": "by-web"})
    assert (again_by_web.status_code, again_by_web.text.count("\n")) == (409, 1)
    assert "savepoints are never overwritten, choose another name" in again_by_web.text
    assert "has no operator 'none'" in web.asked("rescale", {"operators": {"none": 2}}).text
    assert web.asked("rescale", {"parallelism": 2}).status_code == 202
    wait_until(lambda: sorted(vertex["parallelism"] for vertex in clonos.status().get("vertices", ())) == [2, 2])
    clonos.await_state("running")

    refused = clonos("stop", "numbers", "--savepoint", "early")
    assert refused.stderr.startswith("error: 'numbers' has a savepoint 'early': savepoints are never overwritten")
    assert clonos.status()["state"] == "running"
    *_, stopped, last = clonos("stop", "numbers", "--savepoint", "last").stdout.splitlines()
    assert stopped.startswith("stopped after ")
    assert last.startswith("savepoint 'last' is checkpoint ")
    clonos.await_state("stopped")
    wait_until(lambda: clonos.actors("ProcessActor") == [])
    assert clonos.ask("orphans") == []
    assert len(visible_rows(tmp_path / "out")) < TOTAL

    (tmp_path / "unpaced").touch()
    (tmp_path / "job.py").unlink()  # what runs lies beside the checkpoints
    resumed = clonos("resume", "numbers", "--checkpoints", clonos.checkpoints)
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(vertex["parallelism"] for vertex in clonos.status()["vertices"]) == [2, 2], "that of the run before"
    clonos.await_state("finished")
    assert list(CheckpointStore(clonos.checkpoints, "numbers").savepoints()) == ["by-web", "early", "last"]
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))

    (driver,) = clonos.actors("DriverActor")
    clonos.replaced(driver)
    clonos.await_state("finished")
    assert clonos.actors("ProcessActor") == [], "the run is not repeated"


def test_a_failed_run_says_why_and_its_name_is_free(clonos: Commands) -> None:
    checkpoints = ("--checkpoints", clonos.checkpoints)
    for _ in range(2):
        clonos("run", "failing.py", "--detach", *checkpoints)
        clonos.await_state("failed")
    (listed,) = json.loads(clonos("list", "--json").stdout)
    assert listed["state"] == "failed"
    assert "ValueError: as it is written" in listed["error"]
    assert clonos.actors("ProcessActor") == []
    nobody = clonos("status", "nobody")
    assert nobody.stderr == "error: there is no detached run of 'nobody' on this cluster; detached runs: 'numbers'\n"
    empty = clonos("resume", "nobody", *checkpoints)
    assert (empty.returncode, empty.stderr.count("\n")) == (1, 1)
    assert "has no detached run: start one with `clonos run FILE --detach`" in empty.stderr


@pytest.mark.thorough
def test_each_tenant_has_names_of_its_own(clonos: Commands, tmp_path: Path) -> None:
    theirs = ("--namespace", "team-a")
    assert clonos.deploy().returncode == 0
    folders = ("--checkpoints", str(tmp_path / "others"), "--folder", str(tmp_path / "theirs"))
    started = clonos.deploy(*theirs, *folders)
    assert "`clonos stop numbers --namespace team-a` stops it" in started.stdout, started.stderr
    for tenant in ((), theirs):
        (listed,) = json.loads(clonos("list", "--json", *tenant).stdout)
        assert (listed["job"], listed["state"]) == ("numbers", "running")
    assert clonos("list", "--namespace", "team-b").stdout == "no job runs on this cluster\n"
    stopped = clonos("stop", "numbers", "--savepoint", "last", *theirs)
    assert stopped.stdout.splitlines()[-1].startswith("savepoint 'last' is checkpoint "), stopped.stderr
    assert clonos.status()["state"] == "running"
    (listed,) = json.loads(clonos("list", "--json", *theirs).stdout)
    assert listed["state"] == "stopped"
    assert clonos("list", "--orphans", *theirs).stdout == ""
    (tmp_path / "unpaced").touch()
    resumed = clonos("resume", "numbers", "--checkpoints", str(tmp_path / "others"), *theirs)
    assert resumed.returncode == 0, resumed.stderr
    clonos.await_state("finished")
    refused = clonos("list", "--namespace", "team/a")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "'team/a' is not a name" in refused.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("actor", ["CoordinatorActor", "ProcessActor"])
def test_a_driver_may_die_while_the_job_is_deployed(clonos: Commands, tmp_path: Path, actor: str) -> None:
    """Its coordinator dies with it, a moment later."""
    (tmp_path / "unpaced").touch()
    command = [CLONOS, *clonos.deployment, "--address", clonos.cluster.address]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as deploying:
        wait_until(lambda: clonos.actors(actor))
        (driver,) = clonos.actors("DriverActor")
        clonos.replaced(driver)
        _, printed = deploying.communicate(timeout=WAIT_S_MAX)
        assert deploying.returncode == 0, printed
    clonos.await_state("finished")
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
def test_a_driver_waits_for_storage_while_its_tasks_run(clonos: Commands) -> None:
    assert clonos.deploy().returncode == 0
    processes = clonos.await_processes(2 + 2)
    (driver,) = clonos.actors("DriverActor")
    runs = Path(clonos.checkpoints) / "numbers" / "runs"
    runs.rename(runs.with_name("away"))
    clonos.replaced(driver)
    wait_until(lambda: "cannot be read, which is tried again" in clonos("logs", "numbers").stdout)
    runs.with_name("away").rename(runs)
    clonos.await_state("running")
    assert clonos.actors("ProcessActor") == processes


@pytest.mark.thorough
def test_a_run_that_cannot_start_at_its_new_parallelism_goes_on_as_before(clonos: Commands, tmp_path: Path) -> None:
    web = served(tmp_path)
    assert clonos.deploy("--protocol", "uncoordinated", *web.settings).returncode == 0
    wait_until(lambda: clonos.status()["checkpoints"]["completed"])
    refused = clonos("rescale", "numbers", "--parallelism", "3")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "'numbers' is not rescaled: checkpoint " in refused.stderr
    assert "other operators or another parallelism" in refused.stderr
    clonos.await_state("running")
    assert web.asked("rescale", {"parallelism": 3}).status_code == 202
    wait_until(lambda: any(news.startswith("the parallelism is not changed: ") for news in clonos.status()["news"]))
    assert {vertex["parallelism"] for vertex in clonos.status()["vertices"]} == {2}
    (driver,) = clonos.actors("DriverActor")
    clonos.replaced(driver)
    (tmp_path / "unpaced").touch()
    clonos.await_state("finished")
    assert clonos.ask("orphans") == []
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
@pytest.mark.parametrize("opened", [3, 5])
def test_a_driver_may_die_while_it_rescales(clonos: Commands, tmp_path: Path, opened: int) -> None:
    """``opened``: how many of the six new processes there are then, at least."""
    assert clonos.deploy().returncode == 0
    (driver,) = clonos.actors("DriverActor")
    before = clonos.actors("ProcessActor")
    command = [CLONOS, "rescale", "numbers", "--parallelism", "3", "--address", clonos.cluster.address]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as rescaling:
        wait_until(lambda: len(set(clonos.actors("ProcessActor")) - set(before)) >= opened)
        clonos.replaced(driver)
        _, printed = rescaling.communicate(timeout=WAIT_S_MAX)
        assert rescaling.returncode == 1, printed
    clonos.await_state("running")
    (tmp_path / "unpaced").touch()
    clonos.await_state("finished")
    assert clonos.ask("orphans") == []
    assert clonos.actors("ProcessActor") == []
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
def test_a_process_may_die_before_the_run_has_stopped_that_it_is_to_follow(clonos: Commands, tmp_path: Path) -> None:
    """It is replaced, or the run goes on as before: if Ray was still starting it."""
    assert clonos.deploy().returncode == 0
    before = clonos.await_processes(2 + 2)
    command = [CLONOS, "rescale", "numbers", "--parallelism", "3", "--address", clonos.cluster.address]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as rescaling:
        wait_until(lambda: len(set(clonos.actors("ProcessActor")) - set(before)) == 3 + 3)
        os.kill((set(clonos.actors("ProcessActor")) - set(before)).pop(), signal.SIGKILL)
        _, printed = rescaling.communicate(timeout=WAIT_S_MAX)
    assert rescaling.returncode == 0 or "a process for the new parallelism has died" in printed, printed
    clonos.await_state("running")
    tasks = 2 if rescaling.returncode else 3
    assert {vertex["parallelism"] for vertex in clonos.status()["vertices"]} == {tasks}
    (tmp_path / "unpaced").touch()
    clonos.await_state("finished")
    assert clonos.ask("orphans") == []
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
def test_a_run_may_be_stopped_while_others_prepare_to_follow_it(clonos: Commands, tmp_path: Path) -> None:
    assert clonos.deploy().returncode == 0
    before = clonos.await_processes(2 + 2)
    command = [CLONOS, "rescale", "numbers", "--parallelism", "3", "--address", clonos.cluster.address]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as rescaling:
        wait_until(lambda: rescaling.poll() is not None or set(clonos.actors("ProcessActor")) > set(before))
        stopped = clonos("stop", "numbers", "--savepoint", "last")
        _, printed = rescaling.communicate(timeout=WAIT_S_MAX)
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.splitlines()[-1].startswith("savepoint 'last' is checkpoint "), stopped.stdout
    refused = "error: 'numbers' is not rescaled: the run is " in printed
    assert refused == (rescaling.returncode == 1), "or the stop came when the others ran already, and has stopped them"
    clonos.await_state("stopped")
    wait_until(lambda: clonos.actors("ProcessActor") == clonos.actors("CoordinatorActor") == [])
    assert clonos.ask("orphans") == []


@pytest.mark.thorough
def test_a_stop_waits_for_the_next_driver(clonos: Commands) -> None:
    assert clonos.deploy().returncode == 0
    (driver,) = clonos.actors("DriverActor")
    os.kill(driver, signal.SIGKILL)
    wait_until(lambda: clonos.actors("CoordinatorActor") == [])
    stopped = clonos("stop", "numbers")
    assert stopped.stdout.splitlines()[-1].startswith("stopped after "), stopped.stderr
    clonos.await_state("stopped")


@pytest.mark.thorough
def test_a_node_may_be_lost_with_all_that_runs_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tasks, and the driver if Ray has put it there."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with raylets(2) as two:
        command = [sys.executable, "-m", "tests.clusters.detached_asker", two.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asker:
            clonos = Commands(two, asker, tmp_path)
            assert clonos.deploy().returncode == 0
            two.lose()
            (tmp_path / "unpaced").touch()
            clonos.await_state("finished")
            assert clonos.ask("orphans") == []
            asker.kill()
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))


@pytest.mark.thorough
def test_processes_without_a_driver_are_found_and_ended(clonos: Commands) -> None:
    assert clonos.deploy().returncode == 0
    clonos.ask("remove driver")
    found = clonos("list", "--orphans").stdout.splitlines()
    assert found
    assert all(name.startswith("numbers/") for name in found)
    clonos("list", "--orphans", "--remove")
    wait_until(lambda: clonos.actors("ProcessActor") == [])
    assert clonos.ask("orphans") == []
