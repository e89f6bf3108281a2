"""Made-up values have the type and length of those that they replace, and are the same for the same value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from clonos_py import Record, ServiceError
from clonos_py.cli.masking import Mask
from clonos_py.model.errors import SettingError
from clonos_py.testing import http_answer


class Person(Record):
    name: str
    number: int
    note: str
    tags: list[str]
    active: bool = True


ANNA = Person("Anna B-1", 4711, "of Anna B-1", ["Anna B-1", "x"])
BERT = Person("Bert C-2", 4712, "of Bert C-2", [])


def test_values_of_the_columns_and_texts_with_them_are_replaced() -> None:
    mask = Mask(["name", "number"], [ANNA, BERT, ANNA])
    anna, bert = mask.row(ANNA), mask.row(BERT)
    assert anna == mask.row(ANNA)
    assert len({anna.name, bert.name, ANNA.name, BERT.name}) == 4
    assert len({anna.number, bert.number, 4711, 4712}) == 4
    assert [(c.isupper(), c.islower(), c.isdigit()) for c in anna.name] == [
        (c.isupper(), c.islower(), c.isdigit()) for c in ANNA.name
    ]
    assert (anna.name[4], anna.name[6], len(str(anna.number))) == (" ", "-", 4)
    assert (anna.note, anna.tags) == (f"of {anna.name}", [anna.name, "x"])


def test_answers_are_masked_in_values_and_texts_but_not_in_parts_of_numbers() -> None:
    mask = Mask(["name", "number"], [ANNA])
    anna = mask.row(ANNA)
    answer = mask.answer(http_answer('{"name": "Anna B-1", "id": 4711, "other": 147110, "price": 4711.5}'))
    assert answer["content"].decode() == (
        f'{{"name": "{anna.name}", "id": {anna.number}, "other": 147110, "price": 4711.5}}'
    )
    assert answer["status"] == 200
    assert mask.answer([4711, {"who": "Anna B-1"}, 4711.5, True, None]) == [
        anna.number, {"who": anna.name}, 4711.5, True, None,
    ]  # fmt: skip
    assert str(mask.answer(ServiceError("no Anna B-1"))) == f"no {anna.name}"


def test_a_text_is_not_replaced_within_a_word() -> None:
    mask = Mask(["name"], [Person("a", 1, "a rate of a", [])])
    made = mask.row(Person("a", 1, "a rate of a", []))
    assert made.note == f"{made.name} rate of {made.name}"
    assert mask.answer('{"rate": "a"}') == f'{{"rate": "{made.name}"}}'
    mask = Mask(["name"], [ANNA])
    assert mask.leaks("dear Anna B-1, hello") == "Anna B-1"
    assert mask.leaks("dear Anna B-12") is None


@pytest.mark.parametrize(
    "value",
    ["ä", "x@y.org", b"abc", 7, -7, 7.25, Decimal("12.50"), date(2020, 1, 2), datetime(2020, 1, 2, 3, tzinfo=UTC)],
)
def test_a_value_of_any_type_becomes_another_of_it(value: Any) -> None:
    class One(Record):
        column: Any

    made = Mask(["column"], [One(value)]).row(One(value)).column
    assert (type(made), made != value) == (type(value), True)
    if not isinstance(value, date):
        assert len(str(made)) == len(str(value)) or isinstance(value, bytes)


def test_nothing_stays_nothing_and_equal_numbers_of_two_types_stay_of_their_type() -> None:
    class Two(Record):
        a: Any
        b: Any

    rows = [Two(None, ""), Two(7, 7.0)]
    mask = Mask(["a", "b"], rows)
    assert mask.row(rows[0]) == rows[0]
    made = mask.row(rows[1])
    assert (type(made.a), type(made.b)) == (int, float)


def test_values_that_cannot_be_masked_are_refused() -> None:
    with pytest.raises(SettingError, match="column 'active' cannot be masked: it has values such as True"):
        Mask(["active"], [ANNA])
    many = [Person("", n, "", []) for n in range(10)]
    with pytest.raises(SettingError, match="column 'number' cannot be masked: there are too few values such as"):
        Mask(["number"], many)
