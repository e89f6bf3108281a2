"""What changed code is answered from a record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.model.errors import RecordError
from clonos_py.runtime.replay.answers import (
    Answers,
    LeftRecord,
    QuestionMoment,
    RecordedAnswers,
    ServiceAnswer,
    Unasked,
)
from clonos_py.runtime.replay.watching import question_of
from clonos_py.services.http import IDEMPOTENCY_KEY, Request


def at(event: int, row: str = "") -> QuestionMoment:
    return QuestionMoment("task", event, row)


def test_a_row_gets_what_it_got_before_although_others_are_missing() -> None:
    answers = Answers[int]()
    for row, answer in (("a", 1), ("b", 2), ("c", 3)):
        answers.add("q", at(1, row), answer)
    assert answers.take("q", at(1, "c")) == 3
    assert answers.take("q", at(1, "a")) == 1
    assert answers.take("q", at(1, "a")) is None


def test_equal_rows_get_the_answer_of_the_same_event_and_then_the_oldest_one() -> None:
    answers = Answers[int]()
    for event in (1, 2, 2, 3):
        answers.add("q", at(event), 10 * event + len(answers._waiting.get("q", ())))
    assert [answers.take("q", at(2)), answers.take("q", at(2)), answers.take("q", at(9))] == [21, 22, 10]


def test_a_question_of_another_row_gets_the_nearest_answer() -> None:
    answers = Answers[int]()
    answers.add("q", at(1, "a"), 1)
    answers.add("q", at(2, "b"), 2)
    assert answers.nearest("q", at(1, "new")) == 1
    assert answers.nearest("q", at(5, "new")) == 2
    assert answers.nearest("other", at(1, "new")) is None


def test_answers_that_are_not_taken_are_held_up_to_a_limit() -> None:
    answers = Answers[int](questions_max=3)
    for row in range(10):
        answers.add(row, at(row), row)
    assert [answers.take(row, at(row)) for row in range(10)] == [None] * 7 + [7, 8, 9]
    for event in range(1_000):
        answers.add("popular", at(event), event)
    assert len(answers._waiting["popular"]) <= 256


def test_an_operator_with_another_name_gets_the_answers_too() -> None:
    record = RecordedAnswers()
    record.of("old").services.add("q", at(1), ServiceAnswer("yes"))
    assert record.service("new", "q", at(7)) == ServiceAnswer("yes")
    assert record.service("new", "other", at(7)) is None


def test_leaving_the_record_names_the_first_place_and_counts() -> None:
    record = RecordedAnswers(Unasked.DEFAULT)
    record.leave("GET /a", "look", lambda: "row 1")
    record.leave("GET /b", "look", lambda: "row 2")
    assert (record.left, record.first_left) == (2, "operator 'look' asks for GET /a at row 1")
    strict = RecordedAnswers()
    with pytest.raises(LeftRecord):
        strict.leave("GET /a", "look", lambda: "row 1")
    assert isinstance(strict.refused, RecordError)


def test_a_service_of_the_job_file_has_one_name_in_both_versions() -> None:
    record = RecordedAnswers(modules=frozenset({"night", "night_new"}))
    assert record.service_name("night.price") == record.service_name("night_new.price") == "price"
    assert record.service_name("shops.price") == "shops.price"
    assert record.service_name("http") == "http"


def test_requests_are_equal_without_the_keys_that_they_were_given() -> None:
    """These name the row's place in its frame, which changes; a key of the user is part of the question."""
    bare = Request("GET", "http://a/1", {"Accept": "x"}, b"", 1_000)

    def keyed(key: str) -> Request:
        return replace(bare, headers={IDEMPOTENCY_KEY: key, **bare.headers})

    given = question_of("http", keyed(f"run/look/0/0/1/2/{bare.digest()}"))
    assert given == question_of("http", keyed(f"run/look/0/0/8/1/{bare.digest()}"))
    assert given == question_of("http", replace(bare, timeout_us=5, after_us=7))
    assert given != question_of("http", keyed("of-the-user"))
    assert given != question_of("http", replace(bare, url="http://a/2"))
