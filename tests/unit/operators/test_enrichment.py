"""Bounded side inputs: read whole, joined with every row, and the same after a restart or an error."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from clonos_py.connectors import MemorySource
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Source, Wait
from clonos_py.model.record import Record
from clonos_py.operators.enrichment import Enrich
from tests.unit.operators.scripted import opened, schema, stored


class Country(Record):
    code: str
    name: str


COUNTRIES = [Country("de", "Germany"), Country("fr", "France"), Country("de", "Deutschland")]
ROWS = schema(("id", pa.int64()), ("country", pa.string()))
RESULT = schema(("id", pa.int64()), ("name", pa.string()))


class Endless(Source):
    def poll(self, now: int) -> Wait:
        return Wait(now + 1)


def enrich(countries: list[Country]) -> Enrich:
    source = MemorySource(countries, partitions=2, schema=Country, batch_rows=1)
    return Enrich(
        lambda: source.create((None,)), Country.schema(), ["country"], ["code"],
        (("id", 0, "id"), ("name", 1, "name")), RESULT,
    )  # fmt: skip


def rows(countries: Mapping[int, str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(countries)), pa.array(list(countries.values()), pa.string())], schema=ROWS)


def test_each_row_is_joined_with_all_rows_of_the_side_input_that_have_its_key() -> None:
    operator = enrich(COUNTRIES)
    ctx, out = opened(operator)
    operator.on_rows(rows({1: "fr", 2: None, 3: "de", 4: "xx", 5: "fr"}), 0)
    operator.on_rows(rows({6: "xx"}), 0)
    assert [tuple(row.values()) for row in out.rows()] == [
        (1, "France"), (3, "Germany"), (3, "Deutschland"), (5, "France")
    ]  # fmt: skip
    assert ctx.counted == {"null_key_rows": 1}


def test_an_empty_side_input_matches_nothing() -> None:
    operator = enrich([])
    _, out = opened(operator)
    operator.on_rows(rows({1: "fr"}), 0)
    assert out.rows() == []


def test_a_replacement_reads_the_side_input_again_and_refuses_a_changed_one() -> None:
    first, second = enrich(COUNTRIES), enrich(COUNTRIES)
    opened(first)
    _, out = opened(second)
    second.restore([stored(first.snapshot()), stored(first.snapshot())])
    second.on_rows(rows({1: "fr"}), 0)
    assert [row["name"] for row in out.rows()] == ["France"]
    for changed in (COUNTRIES[:2], [*COUNTRIES[:2], Country("de", "Allemagne")], [COUNTRIES[i] for i in (1, 0, 2)]):
        other = enrich(changed)
        opened(other)
        with pytest.raises(SourceError, match="operator 'probe': the side input has changed since the checkpoint"):
            other.restore([first.snapshot()])


def test_a_side_input_without_an_end_is_refused() -> None:
    operator = Enrich(Endless, Country.schema(), ["country"], ["code"], (("id", 0, "id"),), ROWS)
    with pytest.raises(SourceError, match="this one is unbounded"):
        opened(operator)
