"""An error of a user's function names operator and record, and ends with the line of the user's code."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from clonos_py import UserCodeError, testing
from clonos_py.cli.main import invoke
from clonos_py.dsl.loading import load_job_file
from tests.jobs.failing import FAILURES, PARAMETERS, place, written
from tests.observed import without_warnings

numbers = itertools.count()
INTERNAL = re.compile(r"frame|channel|attempt|\[0\]|sequence")


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def failing(verbs: str) -> Path:
    return written(Path.cwd(), f"failing_{next(numbers)}", verbs)


@pytest.mark.parametrize("runtime", ["local", "sim"])
@pytest.mark.parametrize(("verbs", "record", "marked", "function"), FAILURES, ids=PARAMETERS)
def test_an_error_shows_the_record_and_the_last_line_of_user_code(
    runtime: str, verbs: str, record: str, marked: str, function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = failing(verbs)
    assert invoke(["run", str(file), "--runtime", runtime]) == 1
    (line,) = without_warnings(capsys.readouterr().err)
    assert line.startswith("error: operator '")
    assert record in line
    assert line.endswith(f"; at {place(file, marked, function)}")
    assert not INTERNAL.search(line)


def test_a_check_shows_the_records_and_the_last_lines_of_user_code(capfd: pytest.CaptureFixture[str]) -> None:
    """One check of a job with all of them: each check starts two processes."""
    sinks = (f".sink(out).named('out-{number}')" for number in range(len(FAILURES)))
    file = failing(
        "\n".join(verbs.replace(".sink(out)", sink) for (verbs, *_), sink in zip(FAILURES, sinks, strict=True))
    )
    invoke(["check", str(file)])
    printed = [line for line in capfd.readouterr().out.splitlines() if ": operator '" in line]
    for verbs, record, marked, function in FAILURES:
        location = f"; at {place(file, marked, function)}"
        assert any(record in line and location in line for line in printed), verbs


def test_a_test_shows_the_last_line_of_user_code() -> None:
    file = failing("rows.map(mapped).sink(out).named('out')")
    with pytest.raises(UserCodeError, match=re.escape(f"; at {place(file, 'checked', 'checked')}") + "$"):
        testing.run(load_job_file(str(file)).job(), {})


def test_the_traceback_of_user_code_is_shown_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLONOS_DEBUG", "1")
    file = failing("rows.map(mapped).sink(out)")
    assert invoke(["run", str(file), "--runtime", "local"]) == 1
    printed = capsys.readouterr().err
    first, *_, last = printed.splitlines()
    assert first == "Traceback (most recent call last):"
    assert "return Row(row.key, checked(row.value), row.at)" in printed
    assert "ValueError: 7 is too much" in printed
    assert "clonos_py/operators" not in printed
    assert last.startswith("error: operator 'map' failed on record")


def test_dead_letters_have_their_place_and_are_the_same_whenever_tasks_are_killed() -> None:
    file = failing("good, bad = rows.map(recursive).catch()\ngood.sink(out)\nbad.sink(BlackholeSink()).named('bad')")
    found = testing.run(load_job_file(str(file)).job(), {}, kills=2, seeds=5)
    (letter,) = found["bad"]
    assert letter.error == "RecursionError: maximum recursion depth exceeded"
    assert letter.place == place(file, "recursive", "recursive")


def test_an_error_truncates_a_long_record_and_a_dead_letter_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = "rows.select('key', 'at', text=lit('x' * 5_000)).map(fails)"
    function = "def fails(row) -> Row:\n    raise ValueError('no')\n"
    assert invoke(["run", str(failing(f"{function}{long}.sink(out)")), "--runtime", "local"]) == 1
    assert 1_000 < len(capsys.readouterr().err) < 1_400
    caught = f"good, bad = {long}.catch()\ngood.sink(out)\nbad.sink(PrintSink())"
    assert invoke(["run", str(failing(f"{function}{caught}")), "--runtime", "local"]) == 0
    assert all(len(line) > 5_000 for line in capsys.readouterr().out.splitlines())
