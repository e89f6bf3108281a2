"""Causal sinks: visible rows never change and are never doubled, whichever process dies at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted, RolledBack
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from tests import witness
from tests.sim.courses import Course, Faults, crash, running, writes
from tests.witness import EnrichStep, WitnessJob, simulate

SEEDS = 4
BOTH, LEFT, RIGHT = ("left", "right"), ("left",), ("right",)
JOB = WitnessJob(total=60, causal=BOTH)


class Kills:
    """Kills chosen processes, some times, at seeded moments; never before any row is visible."""

    def __init__(self, choose: Callable[[Course, World], Sequence[LocalProcess]], times: int = 3) -> None:
        self._choose, self._left, self._not_before = choose, times, 0
        self.done = self.torn = 0

    def __call__(self, course: Course, world: World) -> None:
        if not self._left or world.actions_done < self._not_before or not course.rows_shown:
            return
        if victims := self._choose(course, world):
            self._left -= 1
            self._not_before = world.actions_done + course.random.randrange(30, 600)
            for victim in victims:
                self.done += 1
                world.kill(victim.number)
            self.torn = course.torn


def writing(course: Course, world: World) -> list[LocalProcess]:
    """A sink in the middle of a write."""
    found = [p for p in running(world, "left", "rank") if writes(p)]
    return [course.random.choice(found)] if found else []


def writing_and_upstream(course: Course, world: World) -> list[LocalProcess]:
    """A sink in the middle of a write, and one or all of those upstream of it."""
    sinks, upstream = writing(course, world), running(world, "enrich", "numbers")
    return sinks + (upstream if course.random.random() < 0.5 else upstream[:1]) if sinks else []


def everybody(course: Course, world: World) -> list[LocalProcess]:
    return list(world.processes.values()) if course.random.random() < 0.02 else []


class Crashes:
    """The whole job dies, its coordinator too."""

    def __init__(self, times: int = 3) -> None:
        self._left = times

    def __call__(self, course: Course, world: World) -> None:
        if self._left and course.rows_shown and course.random.random() < 0.004:
            self._left -= 1
            crash(world)


class CrashesAfterCheckpoints:
    """The whole job dies when a checkpoint has just become complete."""

    def __init__(self, times: int = 3) -> None:
        self._left, self._completed = times, 0

    def __call__(self, course: Course, world: World) -> None:
        completed = course.count(CheckpointCompleted)
        if self._left and completed > self._completed and course.any_writes:
            self._left -= 1
            crash(world)
        self._completed = completed


class Rollbacks:
    """All tasks roll back to the last checkpoint, again and again; processes die besides."""

    def __init__(self, times: int = 2) -> None:
        self._left, self._kills = times, Kills(writing, 2)

    def __call__(self, course: Course, world: World) -> None:
        self._kills(course, world)
        if self._left and running(world) and course.rows_shown and course.random.random() < 0.004:
            self._left -= 1
            world.coordination._executor.carry_out(world.job._roll_back("the test wants it"))


def problems(faults: Callable[[], Faults], seeds: int = SEEDS) -> list[str]:
    """The problems of the first seed that has any."""
    for seed in range(seeds):
        course = Course(seed, JOB, faults())
        found = _problems(course)
        if any(isinstance(e, RolledBack) and e.reason != "the test wants it" for e in course.events):
            found.append("a rollback that nothing required")
        if any(isinstance(e, CheckpointAborted) and e.reason == "timeout" for e in course.events):
            found.append("a checkpoint that nobody completed")
        if found:
            return [f"seed {seed}", *found]
    return []


def _problems(course: Course) -> list[str]:
    try:
        return course.run()
    except AssertionError as problem:
        return [str(problem)]


@pytest.mark.parametrize("causal", [BOTH, LEFT, RIGHT])
def test_rows_that_are_visible_at_once_agree_under_any_failures(causal: tuple[str, ...]) -> None:
    for seed in range(SEEDS):
        outcome = simulate(seed, WitnessJob(total=60, causal=causal), kills=6)
        assert not outcome.problems, f"seed {seed}: {outcome.problems}"


def test_rows_are_visible_before_the_first_checkpoint_is_complete() -> None:
    published: list[int] = []

    def look(course: Course, world: World) -> None:
        if not course.count(CheckpointCompleted):
            published.append(course.rows_shown)

    assert Course(1, JOB, look).run() == []
    assert max(published) > 10


@pytest.mark.parametrize("choose", [writing, writing_and_upstream, everybody])
def test_a_write_during_which_the_sink_fails_is_repeated(
    choose: Callable[[Course, World], list[LocalProcess]],
) -> None:
    made: list[Kills] = []

    def kills() -> Faults:
        made.append(Kills(choose))
        return made[-1]

    assert problems(kills) == []
    assert sum(kill.done for kill in made) > SEEDS
    assert sum(kill.torn for kill in made) > SEEDS // 4


@pytest.mark.parametrize("crashes", [Crashes, CrashesAfterCheckpoints])
def test_a_job_that_is_started_again_rebuilds_the_visible_rows(crashes: Callable[[], Faults]) -> None:
    assert problems(crashes) == []


def test_a_rollback_rebuilds_the_visible_rows() -> None:
    assert problems(Rollbacks) == []


class Zombies:
    """Sinks are replaced while they still run: they complete the write they are in and continue."""

    def __init__(self, times: int = 2) -> None:
        self._left = times

    def __call__(self, course: Course, world: World) -> None:
        found = writing(course, world) if self._left and course.random.random() < 0.2 else []
        if found:
            self._left -= 1
            world.coordination.notice_death(found[0].number, "taken for dead")


def test_a_zombie_writes_nothing_after_it_has_been_replaced() -> None:
    assert problems(Zombies) == []


class Fickle(EnrichStep):
    """Emits values that no replay could repeat."""

    calls = itertools.count()

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        super().on_rows(rows.set_column(1, "key", pa.array([next(self.calls)] * rows.num_rows)), side)


def test_a_nondeterministic_operator_ends_the_job_and_visible_rows_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(witness, EnrichStep.__name__, Fickle)
    course = Course(3, JOB, Kills(everybody, 1))
    problem = course.run()[0]
    assert "rebuilt with other content" in problem
    assert "not deterministic; find it with 'clonos check'" in problem
    assert "rollbacks without a completed checkpoint" in problem
