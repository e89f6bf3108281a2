"""Every driver runs the same executors, and no other code executes the machines' instructions."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.job.events import JobInstruction, JobPolicy, StartProcess
from clonos_py.link.instructions import Instruction
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Stop
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime import executors, sim
from clonos_py.runtime.executors.job import JobExecutor
from clonos_py.runtime.executors.link import LinkExecutor
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageExecutor
from clonos_py.runtime.executors.task import TaskExecutor
from clonos_py.runtime.ray.job_loop import Interrupt, JobListeners, JobLoop
from clonos_py.runtime.ray.process import Deployment, ProcessRuntime
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.runtime.world.world import World
from clonos_py.settings.resolution import resolve
from tests.machines import job_machine, sides_of
from tests.unit.runtime.test_job_loop import Cast
from tests.witness import WitnessJob, WitnessLedger, simulate

RUNTIME = Path(executors.__file__).parents[1]
EXECUTORS = (LinkExecutor, TaskExecutor, StorageExecutor, SpillExecutor, JobExecutor)
CHECKS = {"sim/invariants.py", "sim/silence.py"}
"""They look at instructions, and carry none out."""


# ---- the same executors


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[type]:
    """The classes of the executors in use: those of ``EXECUTORS``, or any derived from them."""
    found: set[type] = set()
    for cls in EXECUTORS:
        monkeypatch.setattr(cls, "__init__", _noting(cls.__init__, found))
    return found


def _noting(init: Callable[..., None], found: set[type]) -> Callable[..., None]:
    def noting(self: object, *given: Any, **named: Any) -> None:
        found.add(type(self))
        init(self, *given, **named)

    return noting


def run_on_ray(folder: Path) -> None:
    """A process and a coordinator in threads, as Ray runs them, but without it."""
    plan, store = WitnessJob().plan(WitnessLedger()), MemoryStore("witness")
    deployment = Deployment(plan, *sides_of(plan), lambda: store, b"secret", ChannelLimits(), 10_000, True, folder)
    process = ProcessRuntime(deployment, 1, TaskId("enrich", 0), "node", "127.0.0.1", lambda message: None)
    process.start()
    process.deliver(Stop("the test has seen it"))
    process.wait()
    listeners = JobListeners(lambda at, event: None, lambda at, task: None, lambda task, number, counters: None)
    loop, cast = JobLoop(job_machine(plan, JobPolicy()), store, listeners), Cast()
    cast.loop = loop
    loop.put(Interrupt())
    assert loop.run(cast) is None


def run_locally(folder: Path) -> None:
    run_query(QueryRun("q0", 1_000, sink=SinkKind.DIGEST), resolve({"runtime": "local"}))


def run_simulated(folder: Path) -> None:
    assert run_seed(0).problems == []


def run_calmly(folder: Path) -> None:
    assert simulate(0, kills=0).problems == []


@pytest.mark.parametrize("run", [run_on_ray, run_locally, run_simulated, run_calmly])
def test_every_driver_runs_the_same_executors(run: Callable[[Path], None], made: set[type], tmp_path: Path) -> None:
    run(tmp_path)
    assert made == set(EXECUTORS)


# ---- no other code executes instructions


def matched(source: str) -> set[str]:
    """The instructions that a module matches."""
    instructions = {cls.__name__ for cls in (*_members(Instruction), *_members(JobInstruction))}
    patterns = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.MatchClass)]
    return {ast.unparse(pattern.cls).split(".")[-1] for pattern in patterns} & instructions


def _members(union: Any) -> Iterator[type]:
    for member in get_args(union):
        yield from _members(member) if get_args(member) else (member,)


def test_only_executors_match_instructions() -> None:
    modules = {path.relative_to(RUNTIME).as_posix(): matched(path.read_text()) for path in RUNTIME.rglob("*.py")}
    matching = {module for module, found in modules.items() if found}
    assert {module for module in matching if not module.startswith("executors/")} == CHECKS
    assert {name for module in matching - CHECKS for name in modules[module]} >= {
        cls.__name__ for cls in (*_members(Instruction), *_members(JobInstruction))
    }


def test_the_check_finds_a_match_elsewhere() -> None:
    assert matched(
        "match x:\n    case io.SendToTask(item) | SendFrame():\n        pass\n    case Lost():\n        pass"
    ) == {
        "SendToTask",
        "SendFrame",
    }


# ---- no private methods are overridden


def overridden(cls: type) -> set[str]:
    """The private methods of classes outside of the simulator that a class of the simulator replaces."""
    strangers = [base for base in cls.__mro__[1:] if not base.__module__.startswith(sim.__name__)]
    methods = [name for name, member in vars(cls).items() if inspect.isroutine(member) or isinstance(member, property)]
    private = [name for name in methods if name.startswith("_") and not name.endswith("_")]
    return {name for name in private if any(name in vars(base) for base in strangers)}


def classes_of_the_simulator() -> Iterator[type]:
    for module in pkgutil.iter_modules(sim.__path__, f"{sim.__name__}."):
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__ == module.name:
                yield cls


def test_the_simulator_overrides_no_private_method() -> None:
    classes = list(classes_of_the_simulator())
    assert len(classes) > 50
    assert {(cls, name) for cls in classes for name in overridden(cls)} == set()


def test_the_check_finds_an_override() -> None:
    class Bent(World):
        def _start(self, request: StartProcess) -> None:
            pass

    assert overridden(Bent) == {"_start"}
