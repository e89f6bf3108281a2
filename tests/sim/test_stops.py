"""Simulated jobs that the user stops at any moment and runs again."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from clonos_py.job.events import Instructions
from clonos_py.job.machine import JobMachine
from clonos_py.job.states import Ending
from clonos_py.model.coordinator_events import Finished
from clonos_py.model.ids import TaskId
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.purposes import Purpose
from clonos_py.protocols.parts.independent import IndependentCheckpoints
from clonos_py.runtime.world.world import World
from clonos_py.settings.protocols import ALIGNED, INDUCED, PROTOCOLS, UNCOORDINATED
from tests.sim.courses import Course, running
from tests.witness import CausalWitness, Witness, WitnessJob

SEEDS = 2
SEEDS_WITH_LOSSES = 2
SEEDS_MAX = 100
"""For a planted bug that one seed of ten shows."""
COURSES = [
    *((protocol, {}) for protocol in PROTOCOLS),
    *((protocol, {"rollback": True, "sharing_depth": 0}) for protocol in PROTOCOLS if protocol.rolls_back),
    (ALIGNED, {"causal": ("left", "right")}),
]
"""Protocols, and the recovery or the sinks of the job."""

Seen = set[tuple[str, int]]
"""The sink, and the id of a row."""


class Stop:
    """One request in the first run, and ``losses`` after it: of tasks, or of the coordinator."""

    def __init__(self, received: Seen, losses: Sequence[str] = ()) -> None:
        self._received, self._losses = received, list(losses)
        self.at_request: Seen = set()
        """What the sinks had received then."""
        self._requested = False

    def __call__(self, course: Course, world: World) -> None:
        dice = course.random.random()
        if not self._requested:
            if running(world) and dice < 0.003:
                self._requested, self.at_request = True, set(self._received)
                world.request_stop()
        elif self._losses and course.runs == 1 and dice < 0.05 and (victims := running(world)):
            if self._losses.pop() == "coordinator":
                world.coordination.lose()
            else:
                world.kill(course.random.choice(victims).number)


class StoppedCourse(Course):
    """Records what is visible after the stopped run has ended."""

    after_stop: Seen | None = None

    def _next_world(self) -> World:
        if self.runs == 2:
            self.after_stop = {(name, row["id"]) for name in ("left", "right") for row in self.ledger.rows(name)}
        return super()._next_world()


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The rows that sinks have received so far."""
    found: Seen = set()
    for kind in (Witness, CausalWitness):
        original = kind.on_rows

        def noted(self: Witness, rows: pa.RecordBatch, side: int, original: object = original) -> None:
            original(self, rows, side)  # type: ignore[operator]
            ids: list[int] = rows.column("id").to_pylist()  # type: ignore[assignment]
            found.update((self._name, id_) for id_ in ids)

        monkeypatch.setattr(kind, "on_rows", noted)
    return found


def stopped(
    seed: int, protocol: ProtocolProperties, more: dict[str, object], received: Seen, losses: Sequence[str] = ()
) -> Course:
    """A course without problems."""
    received.clear()
    stop = Stop(received, losses)
    course = StoppedCourse(seed, WitnessJob(total=100, protocol=protocol, **more), stop)  # type: ignore[arg-type]
    problems = course.run()
    if course.after_stop is not None and not losses:
        missing = stop.at_request - course.after_stop
        assert not missing, f"seed {seed}: received before the stop, and not visible: {sorted(missing)}"
    assert problems == [], f"seed {seed}"
    return course


def all_stopped(
    protocol: ProtocolProperties, more: dict[str, object], received: Seen, seeds: Sequence[int] = range(SEEDS)
) -> list[Course]:
    return [stopped(seed, protocol, more, received) for seed in seeds]


@pytest.mark.parametrize(("protocol", "more"), COURSES, ids=str)
def test_a_stop_commits_all_rows_that_sinks_have_received_and_the_next_run_resumes(
    protocol: ProtocolProperties, more: dict[str, object], received: Seen
) -> None:
    courses = all_stopped(protocol, more, received)
    assert sum(course.runs == 2 for course in courses) > SEEDS // 2
    assert all(course.count(Finished) == course.runs for course in courses)


LOSSES = [("coordinator", "task"), ("task", "coordinator"), ("task", "task")]
"""The last is lost first. Every run has one of the first two with each course, in turn."""


@pytest.mark.parametrize(
    ("protocol", "more", "losses"),
    [
        pytest.param(*course, losses, marks=[pytest.mark.thorough] * (losses != LOSSES[number % 2]))
        for number, course in enumerate(COURSES)
        for losses in LOSSES
    ],
    ids=str,
)
def test_failures_during_the_last_checkpoint_of_a_stop_change_no_row(
    protocol: ProtocolProperties, more: dict[str, object], losses: Sequence[str], received: Seen
) -> None:
    courses = [stopped(seed, protocol, more, received, losses) for seed in range(SEEDS_WITH_LOSSES)]
    assert any(course.runs == 2 for course in courses)


# ---- planted bugs


NOTICED = "received before the stop, and not visible"


def test_the_check_finds_a_stop_that_ends_before_the_commits(received: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    maybe_finished = JobMachine._maybe_finished

    def hasty(self: JobMachine) -> Instructions:
        return self._end() if self._ending == Ending(Purpose.STOP, complete=True) else maybe_finished(self)

    monkeypatch.setattr(JobMachine, "_maybe_finished", hasty)
    with pytest.raises(AssertionError, match=NOTICED):
        all_stopped(ALIGNED, {}, received)


@pytest.mark.parametrize("protocol", [UNCOORDINATED, INDUCED], ids=str)
def test_the_check_finds_a_stop_that_counts_snapshots_from_before_the_request(
    protocol: ProtocolProperties, received: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def any_counts(self: IndependentCheckpoints, task: TaskId) -> bool:
        return task in self._stop_triggers and self.completed.handle(task) is not None

    monkeypatch.setattr(IndependentCheckpoints, "_passed_stop", any_counts)
    with pytest.raises(AssertionError, match=NOTICED):
        all_stopped(protocol, {}, received)


def test_the_check_finds_a_stop_that_does_not_wait_for_the_recovery_line(
    received: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newest_counts(self: IndependentCheckpoints, task: TaskId) -> bool:
        return self.epoch(task) >= self._stop_triggers.get(task, 1 << 62)

    monkeypatch.setattr(IndependentCheckpoints, "_passed_stop", newest_counts)
    with pytest.raises(AssertionError, match=NOTICED):
        all_stopped(UNCOORDINATED, {"rollback": True, "sharing_depth": 0}, received, (8, *range(SEEDS_MAX)))
