"""Scenarios of a sink under check: tasks, their attempts, rows, and what is visible."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.record import Record, schema_of
from clonos_py.model.record_codec import encode
from clonos_py.model.tables import CHANGE_COLUMN, INSERT, kind_schema
from clonos_py.testing.attempts import SinkAttempt, SinkTask
from clonos_py.testing.rules import Rule, broken, differing, holding

READS = Rule("read gives the rows that are visible", "see the error; before anything is written it gives none")


@dataclass
class SinkCheck:
    """The sink under check. Each scenario has its own rows and tasks, so that all of them can share one output."""

    sink: SinkDefinition
    read: Callable[[], Iterable[Any]]
    row: Callable[[int], Record]
    later: Callable[[int], Record] | None
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _run: str = field(default_factory=lambda: secrets.token_hex(4))

    def scenario(self) -> SinkScenario:
        number = next(self._numbers)
        return SinkScenario(self, SinkTask(f"check{number}", f"{self._run}.{number}"), Counter(self.seen()))

    def numbers(self, count: int) -> list[int]:
        """Keys that no other row has."""
        return [next(self._numbers) for _ in range(count)]

    def batch(self, rows: Sequence[Record], change: str = INSERT) -> pa.RecordBatch:
        """Rows as the sink takes them. A sink that takes deletions also gets the kind of change."""
        schema = schema_of(type(self.row(0)))
        plain = [msgspec.structs.asdict(row) for row in rows]
        if self.sink.deletes:
            schema = kind_schema(schema, CHANGE_COLUMN)
            plain = [{**row, CHANGE_COLUMN: change} for row in plain]
        return encode(plain, schema)

    def seen(self) -> list[str]:
        with holding(self.sink, READS):
            return list(map(_plain, self.read()))


@dataclass(frozen=True)
class SinkScenario:
    """One scenario. ``before``: the rows that were visible when it began."""

    check: SinkCheck
    task: SinkTask
    before: Counter[str]

    def attempt(self, index: int = 0, parallelism: int = 1, lineage: str = "") -> SinkAttempt:
        """A new attempt of a task of the sink, not yet started."""
        task = replace(self.task, index=index, parallelism=parallelism, lineage=lineage or self.task.lineage)
        return SinkAttempt(self.check.sink, self.check.batch([]).schema, task)

    def rows(self, count: int) -> pa.RecordBatch:
        return self.check.batch([self.check.row(number) for number in self.check.numbers(count)])

    def expect(self, rule: Rule, *written: pa.RecordBatch) -> None:
        """Checks that exactly these rows of the scenario are visible."""
        missing, surplus = self._difference(written)
        if missing or surplus:
            broken(self.check.sink, rule, differing(missing, surplus))

    def expect_among_others(self, rule: Rule, written: pa.RecordBatch) -> None:
        missing, surplus = self._difference([written])
        if missing:
            broken(self.check.sink, rule, differing(missing, surplus))

    def _difference(self, written: Sequence[pa.RecordBatch]) -> tuple[list[str], list[str]]:
        """Rows that are missing, and surplus rows."""
        expected = Counter(_plain(_shown(row)) for rows in written for row in rows.to_pylist())
        found = Counter(self.check.seen())
        found.subtract(self.before)
        return sorted((expected - found).elements()), sorted((found - expected).elements())


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != CHANGE_COLUMN}


def _plain(row: Any) -> str:
    return repr(msgspec.structs.asdict(row) if isinstance(row, Record) else dict(row))
