"""The checks of ``check_sink`` for idempotent sinks: writing rows again changes nothing."""

from __future__ import annotations

from clonos_py.testing.attempts import SinkAttempt
from clonos_py.testing.deaths import dies_before, spread
from clonos_py.testing.rules import Rule
from clonos_py.testing.scenarios import SinkCheck, SinkScenario

DURABLE = Rule(
    "what was written is there when its checkpoint is complete",
    "make rows durable in flush (prepare), or as they come: they are not given again after that",
)
AGAIN = Rule(
    "rows that are written again replace those before",
    "write by a key that each row has, as INSERT ... ON CONFLICT DO UPDATE does",
)
DEATH = Rule(
    "a death while rows are written loses and duplicates nothing",
    "write so that the same rows, written again from the beginning, replace what was left half done",
)
TASKS = Rule("tasks of a sink do not disturb each other", "let no task overwrite or delete what others have written")


def check(check: SinkCheck, deaths: int) -> None:
    for scenario in (_steps, _death_between, _replaced, _tasks):
        scenario(check.scenario())
    lines = _death_while_writing(check.scenario(), None)
    for line in spread(lines, deaths):
        _death_while_writing(check.scenario(), line)


def _complete(attempt: SinkAttempt, checkpoint: int) -> None:
    attempt.commit(attempt.prepare(checkpoint), DURABLE)


def _steps(scenario: SinkScenario) -> None:
    attempt = scenario.attempt().start(DURABLE)
    first, second = scenario.rows(3), scenario.rows(2)
    attempt.write(first)
    _complete(attempt, 1)
    scenario.expect(DURABLE, first)
    _complete(attempt, 2)
    attempt.write(scenario.rows(0))
    attempt.write(second)
    _complete(attempt, 3)
    scenario.expect(DURABLE, first, second)
    attempt.close()


def _death_between(scenario: SinkScenario) -> None:
    """A process dies after rows were written, and another after they were prepared."""
    first, second = scenario.rows(2), scenario.rows(3)
    for prepares in (False, True):
        dead = scenario.attempt().start(AGAIN)
        dead.write(first)
        dead.write(second)
        if prepares:
            dead.prepare(1)
    attempt = scenario.attempt().start(AGAIN)
    attempt.write(first)
    attempt.write(second)
    _complete(attempt, 2)
    scenario.expect(AGAIN, first, second)
    attempt.close()


def _replaced(scenario: SinkScenario) -> None:
    """A hung process writes rows that its replacement has already written."""
    hung, attempt = scenario.attempt().start(AGAIN), scenario.attempt().start(AGAIN)
    rows = scenario.rows(3)
    attempt.write(rows)
    _complete(attempt, 1)
    hung.write(rows)
    hung.prepare(1)
    scenario.expect(AGAIN, rows)
    attempt.close()


def _tasks(scenario: SinkScenario) -> None:
    attempts = [scenario.attempt(index, 2).start(TASKS) for index in (0, 1)]
    written = [scenario.rows(2), scenario.rows(2)]
    for attempt, rows in zip(attempts, written, strict=True):
        attempt.write(rows)
    for attempt in attempts:
        _complete(attempt, 1)
    scenario.expect(TASKS, *written)


def _death_while_writing(scenario: SinkScenario, line: int | None) -> int:
    """A process dies before ``line`` while it writes. Returns how many lines it reached."""
    first, second = scenario.rows(2), scenario.rows(3)
    dead = scenario.attempt().start(DURABLE)
    dead.write(first)
    stored = dead.prepare(1)
    dead.commit(stored, DURABLE)
    dying = [scenario.attempt().start(DURABLE, [stored])]

    def write() -> None:
        attempt = dying.pop()
        attempt.sink.on_rows(second, 0)
        attempt.sink.prepare(2)

    lines = dies_before(line, write)
    attempt = scenario.attempt().start(DEATH, [stored])
    attempt.write(second)
    _complete(attempt, 2)
    scenario.expect(DEATH, first, second)
    attempt.close()
    return lines
