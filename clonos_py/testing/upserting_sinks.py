"""The checks of ``check_sink`` for sinks that keep a table: the last row of a key is visible, deleted rows are not."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.connectors import Delivery
from clonos_py.model.tables import DELETE, INSERT, UPDATE
from clonos_py.testing.rules import Rule
from clonos_py.testing.scenarios import SinkCheck, SinkScenario

REPLACES = Rule("of the rows of a key the last one is visible", "write by key, in the order in which the rows come")
DELETES = Rule("a row that is deleted is not visible", "delete the row of that key where _change is 'delete'")
NOT_BACK = Rule(
    "a late commit brings no old row back",
    "let a commit do nothing if its checkpoint, or a higher one, is marked already",
)


def check(check: SinkCheck) -> None:
    _later_rows(check.scenario())
    if check.sink.deletes:
        _deletions(check.scenario())
    if check.sink.delivery is Delivery.TRANSACTIONAL:
        _late_commit(check.scenario())


def _one(scenario: SinkScenario, number: int, change: str) -> pa.RecordBatch:
    """The row of a key, or its replacement."""
    check = scenario.check
    assert check.later is not None
    return check.batch([(check.later if change == UPDATE else check.row)(number)], change)


def _later_rows(scenario: SinkScenario) -> None:
    """A row is replaced at a later checkpoint, at the same one, and by a replacement that writes everything again."""
    kept, changed, at_once = scenario.check.numbers(3)
    dead = scenario.attempt().start(REPLACES)
    for number in (kept, changed):
        dead.write(_one(scenario, number, INSERT))
    stored = dead.prepare(1)
    dead.commit(stored, REPLACES)
    dead.write(_one(scenario, changed, UPDATE))
    attempt = scenario.attempt().start(REPLACES, [stored])
    for number, change in ((changed, UPDATE), (at_once, INSERT), (at_once, UPDATE)):
        attempt.write(_one(scenario, number, change))
    attempt.commit(attempt.prepare(2), REPLACES)
    rows = [_one(scenario, kept, INSERT), _one(scenario, changed, UPDATE), _one(scenario, at_once, UPDATE)]
    scenario.expect(REPLACES, *rows)
    attempt.close()


def _deletions(scenario: SinkScenario) -> None:
    """Deletes a visible row, one that never was visible, and one that comes back."""
    visible, never, back, kept = scenario.check.numbers(4)
    dead = scenario.attempt().start(DELETES)
    for number in (visible, back, kept):
        dead.write(_one(scenario, number, INSERT))
    stored = dead.prepare(1)
    dead.commit(stored, DELETES)
    dead.write(_one(scenario, visible, DELETE))
    attempt = scenario.attempt().start(DELETES, [stored])
    for number, change in (
        (visible, DELETE), (never, INSERT), (never, DELETE), (back, DELETE), (back, INSERT),
    ):  # fmt: skip
        attempt.write(_one(scenario, number, change))
    attempt.commit(attempt.prepare(2), DELETES)
    scenario.expect(DELETES, _one(scenario, back, INSERT), _one(scenario, kept, INSERT))
    attempt.close()


def _late_commit(scenario: SinkScenario) -> None:
    """A hung process commits what its replacement has committed before."""
    (number,) = scenario.check.numbers(1)
    hung = scenario.attempt().start(NOT_BACK)
    hung.write(_one(scenario, number, INSERT))
    stored = hung.prepare(1)
    attempt = scenario.attempt().start(NOT_BACK, [stored])
    attempt.write(_one(scenario, number, UPDATE))
    attempt.commit(attempt.prepare(2), NOT_BACK)
    hung.commit(stored, NOT_BACK)
    scenario.expect(NOT_BACK, _one(scenario, number, UPDATE))
    attempt.close()
