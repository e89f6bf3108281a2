"""The checks of ``check_sink`` for transactional sinks: no failure at any point loses or duplicates a row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from clonos_py.model.errors import SinkError
from clonos_py.testing.deaths import dies_before, spread
from clonos_py.testing.rules import Rule
from clonos_py.testing.scenarios import SinkCheck, SinkScenario

_ROUNDS = 5

HIDDEN = Rule(
    "rows are not visible before their commit",
    "write them where readers do not look, or keep them until commit, as TransactionalSink does",
)
SHOWN = Rule("a commit shows the rows that were prepared, and no others", "name in prepare all that came before it")
TWICE = Rule(
    "commit twice writes once",
    "write the rows and the number of the checkpoint in one transaction, and do nothing if that number exists",
)
ABORTED = Rule(
    "rows of an aborted checkpoint are committed with the next one",
    "commit each epoch by itself, and let no prepare replace what an earlier one has named",
)
RESTARTED = Rule(
    "a replacement commits what the checkpoint names",
    "what prepare returns must lead another process to the rows: keep them in durable storage or in the snapshot",
)
REPEATED = Rule(
    "rows that are sent again after a restart are written once",
    "let restore drop what was written since the checkpoint, and let a commit show only what its checkpoint names",
)
DEATH = Rule(
    "a death within commit loses and duplicates nothing",
    "write the rows and the mark of their checkpoint in one transaction, so that both exist or neither does",
)
REPLACED = Rule(
    "an attempt that was replaced has no further effect",
    "let a commit do nothing if its checkpoint, or a higher one, is marked already",
)
AT_ONCE = Rule(
    "two processes may commit the same rows at the same time",
    "check the mark and set it in one transaction that locks it first",
)
TASKS = Rule("tasks of a sink do not disturb each other", "name files and marks by operator and task")
RESCALED = Rule(
    "rows of removed tasks are committed after a change of parallelism",
    "take the owner of rows from what is committed, not from the task that commits it",
)
NEW_RUN = Rule(
    "rows of another run are not taken for those of an earlier one",
    "make the lineage (CommitId.owner, ctx.numbering) part of the mark: --fresh begins with checkpoint 1 again",
)


def check(check: SinkCheck, deaths: int) -> None:
    for scenario in (
        _steps, _nothing_written, _aborted, _death_before_prepare, _death_before_the_commit, _death_of_a_checkpoint,
        _rolled_back,        _replaced, _at_once, _tasks, _fewer_tasks, _another_run,
    ):  # fmt: skip
        scenario(check.scenario())
    lines = _death_within_commit(check.scenario(), None)
    for line in spread(lines, deaths):
        _death_within_commit(check.scenario(), line)


def _steps(scenario: SinkScenario) -> None:
    attempt = scenario.attempt().start(SHOWN)
    first, more, second = scenario.rows(2), scenario.rows(1), scenario.rows(2)
    attempt.write(first)
    attempt.write(more)
    scenario.expect(HIDDEN)
    stored = attempt.prepare(1)
    scenario.expect(HIDDEN)
    attempt.write(second)
    attempt.commit(stored, SHOWN)
    scenario.expect(SHOWN, first, more)
    attempt.commit(stored, TWICE)
    scenario.expect(TWICE, first, more)
    attempt.commit(attempt.prepare(2), SHOWN)
    scenario.expect(SHOWN, first, more, second)
    attempt.close()


def _nothing_written(scenario: SinkScenario) -> None:
    attempt = scenario.attempt().start(SHOWN)
    attempt.commit(attempt.prepare(1), SHOWN)
    attempt.write(scenario.rows(0))
    attempt.commit(attempt.prepare(2), SHOWN)
    scenario.expect(SHOWN)
    attempt.close()


def _aborted(scenario: SinkScenario) -> None:
    attempt = scenario.attempt().start(SHOWN)
    first, second = scenario.rows(2), scenario.rows(2)
    attempt.write(first)
    attempt.prepare(1)
    attempt.write(second)
    attempt.commit(attempt.prepare(2), ABORTED)
    scenario.expect(ABORTED, first, second)
    attempt.close()


def _death_before_prepare(scenario: SinkScenario) -> None:
    dead = scenario.attempt().start(SHOWN)
    first, second = scenario.rows(2), scenario.rows(2)
    dead.write(first)
    stored = dead.prepare(1)
    dead.commit(stored, SHOWN)
    dead.write(second)
    attempt = scenario.attempt().start(TWICE, [stored])
    scenario.expect(TWICE, first)
    attempt.write(second)
    attempt.commit(attempt.prepare(2), REPEATED)
    scenario.expect(REPEATED, first, second)
    attempt.close()


def _death_before_the_commit(scenario: SinkScenario) -> None:
    """The checkpoint is complete, and the attempt that restarts from it commits it."""
    dead = scenario.attempt().start(SHOWN)
    first, second = scenario.rows(2), scenario.rows(2)
    dead.write(first)
    stored = dead.prepare(1)
    for commit_before_restore in (True, False):
        attempt = scenario.attempt().start(RESTARTED, [stored], commit_before_restore)
        scenario.expect(RESTARTED, first)
        attempt.write(second)
    later = attempt.prepare(2)
    scenario.expect(HIDDEN, first)
    attempt.commit(later, RESTARTED)
    scenario.expect(RESTARTED, first, second)
    attempt.close()


def _death_of_a_checkpoint(scenario: SinkScenario) -> None:
    """A task dies after it has prepared, and the checkpoint never completes."""
    dead = scenario.attempt().start(SHOWN)
    first = scenario.rows(3)
    dead.write(first)
    dead.prepare(1)
    attempt = scenario.attempt().start(REPEATED)
    attempt.write(first)
    attempt.prepare(1)
    scenario.expect(HIDDEN)
    attempt.commit(attempt.prepare(2), REPEATED)
    scenario.expect(REPEATED, first)
    attempt.close()


def _rolled_back(scenario: SinkScenario) -> None:
    """A rollback without a death: the process goes back to the beginning, later to a checkpoint, and continues."""
    attempt = scenario.attempt().start(SHOWN)
    first, second = scenario.rows(2), scenario.rows(2)
    attempt.write(first)
    attempt.start(REPEATED)
    attempt.write(first)
    stored = attempt.prepare(1)
    attempt.commit(stored, REPEATED)
    scenario.expect(REPEATED, first)
    attempt.write(second)
    attempt.start(REPEATED, [stored])
    attempt.write(second)
    attempt.commit(attempt.prepare(2), REPEATED)
    scenario.expect(REPEATED, first, second)
    attempt.close()


def _replaced(scenario: SinkScenario) -> None:
    """A hung process resumes after its replacement has made progress."""
    hung = scenario.attempt().start(SHOWN)
    first, second, third = scenario.rows(2), scenario.rows(2), scenario.rows(1)
    hung.write(first)
    stored = hung.prepare(1)
    attempt = scenario.attempt().start(RESTARTED, [stored])
    hung.write(second)
    attempt.write(second)
    attempt.commit(attempt.prepare(2), SHOWN)
    with suppress(SinkError):  # the sink may fence it off
        hung.sink.commit_all(stored.committables)
        hung.sink.on_rows(third, 0)
        hung.sink.prepare(2)
    scenario.expect(REPLACED, first, second)
    attempt.close()


def _at_once(scenario: SinkScenario) -> None:
    """The replacement commits at the same time as the hung attempt."""
    written = []
    attempt = scenario.attempt().start(SHOWN)
    for checkpoint in range(1, _ROUNDS + 1):
        hung = attempt
        written.append(scenario.rows(2))
        hung.write(written[-1])
        stored = hung.prepare(checkpoint)
        attempt = scenario.attempt()
        with ThreadPoolExecutor(2) as pool:
            late = pool.submit(hung.commit, stored, AT_ONCE)
            pool.submit(attempt.start, AT_ONCE, [stored]).result()
            late.result()
        scenario.expect(AT_ONCE, *written)
    attempt.close()


def _tasks(scenario: SinkScenario) -> None:
    attempts = [scenario.attempt(index, 2).start(TASKS) for index in (0, 1)]
    written = [scenario.rows(2), scenario.rows(2)]
    for attempt, rows in zip(attempts, written, strict=True):
        attempt.write(rows)
    stored = [attempt.prepare(1) for attempt in attempts]
    attempts[0].commit(stored[0], TASKS)
    scenario.expect(TASKS, written[0])
    attempts[1] = scenario.attempt(1, 2).start(TASKS, [stored[1]])
    scenario.expect(TASKS, *written)
    for attempt in attempts:
        written.append(scenario.rows(1))
        attempt.write(written[-1])
    for attempt in attempts:
        attempt.commit(attempt.prepare(2), TASKS)
    scenario.expect(TASKS, *written)


def _fewer_tasks(scenario: SinkScenario) -> None:
    written, stored = [], []
    for index in (0, 1):
        attempt = scenario.attempt(index, 2).start(SHOWN)
        written.append(scenario.rows(2))
        attempt.write(written[-1])
        stored.append(attempt.prepare(1))
    alone = scenario.attempt().start(RESCALED, stored)
    scenario.expect(RESCALED, *written)
    written.append(scenario.rows(2))
    alone.write(written[-1])
    alone.commit(alone.prepare(2), RESCALED)
    scenario.expect(RESCALED, *written)
    alone.close()


def _another_run(scenario: SinkScenario) -> None:
    """The same job with --fresh. A sink may refuse to write to the output of another run."""
    earlier = scenario.attempt().start(SHOWN)
    earlier.write(scenario.rows(2))
    earlier.commit(earlier.prepare(1), SHOWN)
    earlier.close()
    later, rows = scenario.attempt(lineage=f"{scenario.task.lineage}-fresh").start(NEW_RUN), scenario.rows(2)
    with suppress(SinkError):
        later.sink.on_rows(rows, 0)
        prepared = later.sink.prepare(1)
        later.sink.commit_all([] if prepared is None else [prepared])
        scenario.expect_among_others(NEW_RUN, rows)


def _death_within_commit(scenario: SinkScenario, line: int | None) -> int:
    """A replacement dies before ``line`` while it commits the last checkpoint. Returns how many lines it reached."""
    first, second, third = scenario.rows(2), scenario.rows(3), scenario.rows(1)
    dead = scenario.attempt().start(SHOWN)
    dead.write(first)
    dead.commit(dead.prepare(1), SHOWN)
    dead.write(second)
    stored = dead.prepare(2)
    dying = [scenario.attempt()]  # the only reference, so that its open files and connections are closed when it dies
    dying[0].sink.loaded([stored.snapshot.read()])
    lines = dies_before(line, lambda: dying.pop().sink.commit_all(stored.committables))
    attempt = scenario.attempt().start(DEATH, [stored])
    scenario.expect(DEATH, first, second)
    attempt.write(third)
    attempt.commit(attempt.prepare(3), DEATH)
    scenario.expect(DEATH, first, second, third)
    attempt.close()
    return lines
