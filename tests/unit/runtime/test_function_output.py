"""What functions print in a worker: only theirs, by line and operator."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from clonos_py.runtime.function_output import FunctionOutput
from clonos_py.task.at_work import runs_operators

USERS = """
def shown(*values, end="\\n"):
    print(*values, end=end, file=out)

def logged(text):
    logger.warning(text)
"""


@pytest.fixture
def output() -> tuple[FunctionOutput, io.StringIO, list[str]]:
    lines: list[str] = []
    original = io.StringIO()
    return FunctionOutput(original, lines.append), original, lines


def users(output: FunctionOutput) -> dict[str, Callable[..., None]]:
    """Functions as of a job's file."""
    logger = logging.Logger("udf")
    logger.addHandler(logging.StreamHandler(output))
    names: dict[str, Any] = {"out": output, "logger": logger}
    exec(compile(USERS, "/home/someone/job.py", "exec"), names)
    return names


@runs_operators
def run(function: Callable[..., None], *values: object, **more: object) -> None:
    stage = SimpleNamespace(name="enriched")  # noqa: F841 - read by at_work
    function(*values, **more)


def test_lines_of_a_function_come_with_its_operator(output: tuple[FunctionOutput, io.StringIO, list[str]]) -> None:
    stream, original, lines = output
    found = users(stream)
    run(found["shown"], "a", 1)
    run(found["shown"], "begun", end="")
    run(found["shown"], " and ended\nnext")
    run(found["logged"], "careful")
    assert "".join(lines) == "enriched\ta 1\nenriched\tbegun and ended\nenriched\tnext\nenriched\tcareful\n"
    assert original.getvalue() == "a 1\nbegun and ended\nnext\ncareful\n"


def test_a_function_outside_of_an_operator_has_no_name(output: tuple[FunctionOutput, io.StringIO, list[str]]) -> None:
    stream, _, lines = output
    users(stream)["shown"]("in a coroutine")
    assert lines == ["\tin a coroutine\n"]


def test_what_others_write_is_not_taken(output: tuple[FunctionOutput, io.StringIO, list[str]]) -> None:
    stream, original, lines = output
    names: dict[str, Any] = {"out": stream}
    exec(compile(USERS, f"{io.__file__}", "exec"), names)
    writer = threading.Thread(target=names["shown"], args=["of a library"])
    writer.start()
    writer.join()
    assert (lines, original.getvalue()) == ([], "of a library\n")
