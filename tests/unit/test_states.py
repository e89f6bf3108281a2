"""The states of every machine change only by its table, the docs show the tables, and the simulator takes every
transition."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

import clonos_py
from clonos_py.channel.frames import PassThrough
from clonos_py.job.events import JobEvent
from clonos_py.job.machine import JOB_EVENTS
from clonos_py.job.states import JOB_STATES, JobCause, JobState
from clonos_py.link.instructions import CommitDone, LinkEvent
from clonos_py.link.machine import LINK_EVENTS
from clonos_py.link.states import LINK_STATES, LinkCause
from clonos_py.model import states
from clonos_py.model.errors import ProtocolError
from clonos_py.model.messages import Ping, ToCoordinator, ToProcess
from clonos_py.model.states import EventTable, Ignored, LastEvents, Unless
from clonos_py.process.contract import FromTask, Observed, TaskState, ToTask
from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.task.machine import TASK_EVENTS
from deploy.diagrams import MODULES, TABLES, shown
from tests.machines import link_machine
from tests.unit.task.plans import MIDDLE, three

AFTER_A_REPLAY_THAT_DIVERGES = {
    (state, JobCause.NO_REPLAY, JobState.ROLLING_BACK) for state in JobState if state is not JobState.RECOVERING
}
"""Simulated operators are deterministic; orphans are found while the job recovers."""
SEEDS_MAX = 100
RANGES = (
    Range(("kill", "coordinator"), sharing_depth=1, tasks_max=10),
    Range(("crash",), tasks_max=10),
    Range(("kill", "stop"), tasks_max=10),
    Range(("kill", "coordinator"), tasks_max=10, cycles=True),
)
KNOWN = ((266, 3), (78, 0), (180, 2), (32, 3), (302, 3), (148, 3))
"""(seed, range) of runs that together take all ways: a hint that saves time."""
PACKAGE = Path(clonos_py.__file__).parent


def test_documents_and_docstrings_show_the_tables() -> None:
    """If not, ``make reference`` writes them."""
    assert {path: path.read_text(encoding="utf-8") for path in shown()} == shown()


def test_a_table_is_shown_with_all_states_in_which_the_same_may_happen() -> None:
    assert JOB_STATES.text().splitlines()[:3] == [
        "    [*] --> STARTING",
        "    STARTING --another coordinator was lost--> TAKING_OVER",
        "    STARTING, RECOVERING --all tasks replay or run--> RUNNING",
    ]


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


EVENTS: dict[str, tuple[EventTable[Any, Any, Any], type[Enum], set[type]]] = {
    "link": (LINK_EVENTS, TaskState, {k for u in (ToProcess, LinkEvent, FromTask) for k in get_args(u)} - {Observed}),
    "task": (TASK_EVENTS, TaskState, set(get_args(ToTask))),
    "job": (JOB_EVENTS, JobState, {*get_args(ToCoordinator), *get_args(JobEvent)}),
}
"""By machine: its table, its states, and its events. The link only counts what it observes."""


@pytest.mark.parametrize("machine", EVENTS)
def test_each_event_is_handled_ignored_or_impossible_in_each_state(machine: str) -> None:
    """With a reason, if it is not handled."""
    table, states, kinds = EVENTS[machine]
    for state in states:
        for kind in kinds:
            entry = table.row(state).get(kind)
            assert callable(entry) if entry is not None else table.impossible[state, kind]
            assert not isinstance(entry, Ignored | Unless) or entry.why
        assert set(table.row(state)) <= kinds, "there are no others"


def test_an_impossible_event_raises_with_the_reason_and_the_last_events() -> None:
    link = link_machine(three(), MIDDLE, 5, PassThrough())
    link.handle(Ping(1))
    reason = "is standby, and CommitDone cannot happen then: a standby has no attempt"
    with pytest.raises(ProtocolError, match=f"{reason}, [^;]*; last events: Ping$"):
        link.handle(CommitDone(1))


def _first_statement(handler: Callable[..., object]) -> ast.stmt:
    """The first one that is neither a docstring nor an assignment."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(handler))).body
    assert isinstance(function, ast.FunctionDef)
    for statement in function.body:
        match statement:
            case ast.Assign() | ast.AnnAssign() | ast.Expr(value=ast.Constant()):
                continue
        break
    return statement


@pytest.mark.parametrize("machine", EVENTS)
def test_no_handler_begins_with_a_return_that_does_nothing(machine: str) -> None:
    """That an event is ignored, and why, is what the table says."""
    table, states, _ = EVENTS[machine]
    entries = {entry for state in states for entry in table.row(state).values() if not isinstance(entry, Ignored)}
    for handler in {entry.handler if isinstance(entry, Unless) else entry for entry in entries}:
        match _first_statement(handler):
            case ast.If(body=[ast.Return(value=None | ast.List(elts=[]))]):
                pytest.fail(f"{handler} begins with a return that does nothing")


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


@pytest.mark.parametrize("path", sorted(MODULES.values()))
def test_a_machine_changes_its_state_only_by_its_table(path: str) -> None:
    assert sorted(value.split("(")[0].split("_STATES.")[1] for value in _assigned(PACKAGE / path)) == [
        "after",
        "initial",
    ]


def test_only_the_machines_set_a_state() -> None:
    setting = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if _assigned(path)}
    assert setting == {*MODULES.values(), "runtime/transport/handshake.py"}


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
    for seed, range_ in (*KNOWN, *product(range(SEEDS_MAX), range(len(RANGES)))):
        run_seed(seed, RANGES[range_])
        if ways <= taken and anywhere <= {cause for _, cause, _ in taken}:
            return
    pytest.fail(f"never taken: {ways - taken}")
