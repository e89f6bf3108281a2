"""The states of every machine change only by its table, the docs show the tables, and the simulator takes every
transition."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import pytest

import clonos_py
from clonos_py.job.events import JobEvent
from clonos_py.job.machine import JobMachine
from clonos_py.job.states import JOB_STATES, JobCause, JobState
from clonos_py.link.instructions import LinkEvent
from clonos_py.link.machine import LinkMachine
from clonos_py.link.states import LINK_STATES, LinkCause
from clonos_py.model import states
from clonos_py.model.errors import ProtocolError
from clonos_py.model.messages import ToCoordinator, ToProcess
from clonos_py.model.states import LastEvents, StateTable
from clonos_py.process.contract import FromTask, Observed, TaskState
from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.task.states import TASK_STATES

TABLES: dict[str, StateTable[Any, Any]] = {"link": LINK_STATES, "task": TASK_STATES, "job": JOB_STATES}
AFTER_A_REPLAY_THAT_DIVERGES = {
    (state, JobCause.ROLLED_BACK, JobState.STARTING) for state in (JobState.STARTING, JobState.RUNNING)
}
"""Simulated operators are deterministic; orphans are found while the job recovers."""
SEEDS_MAX = 2_000
KNOWN = (0, 15, 99, 399)
"""Seeds that take the rare ways: a hint that saves time."""
PACKAGE = Path(clonos_py.__file__).parent
DOCS = PACKAGE.parent / "docs"


@pytest.mark.parametrize("name", TABLES)
def test_the_docs_show_the_table(name: str) -> None:
    assert f"```mermaid\n{TABLES[name].diagram()}\n```" in (DOCS / "design" / "processes.md").read_text()


def test_an_impossible_transition_raises_with_the_last_events() -> None:
    last = LastEvents(kept=2)
    for event in (1, "two", 3.0):
        last.add(type(event))
    message = "^the link is replaying, and 'promoted' cannot happen then; last events: str, float$"
    with pytest.raises(ProtocolError, match=message):
        LINK_STATES.after(TaskState.REPLAYING, LinkCause.PROMOTED, "the link", last)
    with pytest.raises(ProtocolError, match="last events: none"):
        LINK_STATES.after(TaskState.FAILED, LinkCause.ERROR, "the link", LastEvents())
    assert JOB_STATES.after(JobState.RUNNING, JobCause.ENDED, "the job", last) is JobState.ENDED


def test_every_kind_of_event_has_a_handler() -> None:
    known = {kind for union in (ToProcess, LinkEvent, FromTask) for kind in get_args(union)}
    assert set(LinkMachine._HANDLERS) == known - {Observed}, "the link only counts it"
    assert set(JobMachine._HANDLERS) == {*get_args(ToCoordinator), *get_args(JobEvent)}


def _assigned(path: Path) -> list[str]:
    """The values assigned to the attribute ``state`` of a machine, as source text."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                pairs = zip(names, values, strict=len(names) == len(values))
                found += [ast.unparse(v) for n, v in pairs if isinstance(n, ast.Attribute) and n.attr == "state"]
    return found


@pytest.mark.parametrize("path", ["link/machine.py", "task/machine.py", "job/machine.py"])
def test_a_machine_changes_its_state_only_by_its_table(path: str) -> None:
    assert sorted(value.split("(")[0].split("_STATES.")[1] for value in _assigned(PACKAGE / path)) == [
        "after",
        "initial",
    ]


def test_only_the_machines_set_a_state() -> None:
    setting = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if _assigned(path)}
    assert setting == {"link/machine.py", "task/machine.py", "job/machine.py", "runtime/transport/handshake.py"}


def test_the_simulator_takes_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[object, object, object]] = set()

    class Watched(states.StateTable[Any, Any]):
        def after(self, state: Any, cause: Any, machine: object, last: LastEvents) -> Any:
            to = super().after(state, cause, machine, last)
            taken.add((state, cause, to))
            return to

    for table in TABLES.values():
        monkeypatch.setattr(table, "__class__", Watched)
    ways = {way for table in TABLES.values() for way in table.literal} - AFTER_A_REPLAY_THAT_DIVERGES
    anywhere = {cause for table in TABLES.values() for cause in table.anywhere}
    for seed in (*KNOWN, *range(SEEDS_MAX)):
        run_seed(seed, Range(("kill", "coordinator"), sharing_depth=1, tasks_max=10))
        run_seed(seed, Range(("crash",), tasks_max=10))
        if ways <= taken and anywhere <= {cause for _, cause, _ in taken}:
            return
    pytest.fail(f"never taken: {ways - taken}")
