"""What cannot be sent to other processes is named before anything starts, wherever the job refers to it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos_py import GraphError
from clonos_py.cli.main import invoke
from clonos_py.dsl.loading import load_job_file
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve

JOB = """
from __future__ import annotations
import functools, io, logging, re, socket, sqlite3, sys, threading
from typing import Iterator
from clonos_py import Context, Job, Process, Record
from clonos_py.connectors import BlackholeSink, MemorySource

class Row(Record):
    number: int

{definitions}

job = Job("sent")
job.source(MemorySource([Row(1)])).{verb}.sink(BlackholeSink())
"""
MAPPED = """
def mapped(row: Row) -> Row:
    str(THING)
    return row
"""
THINGS = {
    "threading.Lock()": "THING (lock): cannot pickle '_thread.lock' object",
    "socket.socket()": "THING (socket): cannot pickle 'socket' object",
    "open(__file__)": "THING (TextIOWrapper): cannot pickle the open file",
    "open(__file__, 'rb')": "THING (BufferedReader): cannot pickle '_io.BufferedReader' object",
    "open('written', 'w')": "THING (TextIOWrapper): cannot pickle the open file 'written'",
    "sqlite3.connect(':memory:')": "THING (Connection): cannot pickle 'sqlite3.Connection' object",
    "(number for number in [1])": "THING (generator): cannot pickle 'generator' object",
    "{'a': [threading.Lock()]}": "THING.a.[0] (lock): cannot pickle '_thread.lock' object",
    "logging.StreamHandler(sys.stderr)": "THING.lock (RLock): cannot pickle '_thread.RLock' object",
}
PLACES = {
    "a function that it calls": (
        "LOCK = threading.Lock()\ndef held() -> bool:\n    return LOCK.locked()\n"
        "def mapped(row: Row) -> Row:\n    held()\n    return row",
        "map(mapped)",
        "held.LOCK (lock)",
    ),
    "a function within it": (
        "LOCK = threading.Lock()\n"
        "def mapped(row: Row) -> Row:\n    [held for held in [1] if LOCK.locked()]\n    return row",
        "map(mapped)",
        "LOCK (lock)",
    ),
    "a default": (
        "def mapped(row: Row, *, lock: object = threading.Lock()) -> Row:\n    return row\n"
        "def outer(row: Row) -> Row:\n    return mapped(row)",
        "map(outer)",
        "mapped.lock (lock)",
    ),
    "a class attribute": (
        "class Held(Process[Row, Row]):\n    lock = threading.Lock()\n"
        "    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:\n        yield row",
        "key_by('number').process(Held)",
        "lock (lock)",
    ),
    "a method of a record": (
        "LOCK = threading.Lock()\nclass Out(Record):\n    number: int\n"
        "    def held(self) -> bool:\n        return LOCK.locked()\n"
        "def mapped(row: Row) -> Out:\n    return Out(row.number)",
        "map(mapped)",
        "Out.held.LOCK (lock)",
    ),
    "a function with a cache": (
        "LOCK = threading.Lock()\n@functools.cache\ndef held(n: int) -> bool:\n    return LOCK.locked()\n"
        "def mapped(row: Row) -> Row:\n    held(1)\n    return row",
        "map(mapped)",
        "held.LOCK (lock)",
    ),
}
SENT = ["sys.stderr", "sys.stdout", "re.compile('a')", "logging.getLogger('a')", "io.StringIO('a')"]
numbers = itertools.count()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("sent_to_others_")]:
        del sys.modules[name]


def written(definitions: str, verb: str) -> str:
    path = Path(f"sent_to_others_{next(numbers)}.py")
    path.write_text(JOB.format(definitions=definitions, verb=verb))
    return str(path)


def refused(file: str) -> str:
    with pytest.raises(GraphError) as caught:
        plan(load_job_file(file).job())
    return str(caught.value)


@pytest.mark.parametrize(("thing", "named"), THINGS.items())
def test_a_thing_of_the_module_that_cannot_be_sent_is_named(thing: str, named: str) -> None:
    file = written(f"THING = {thing}{MAPPED}", "map(mapped)")
    message = refused(file)
    assert message.startswith(f"{file}:")
    assert f"map: it cannot be sent to a task because of {named}" in message or f"mapped.{named}" in message


@pytest.mark.parametrize(("definitions", "verb", "named"), PLACES.values(), ids=PLACES)
def test_a_lock_is_found_wherever_the_job_refers_to_it(definitions: str, verb: str, named: str) -> None:
    assert f"{named}: cannot pickle '_thread.lock' object" in refused(written(definitions, verb))


@pytest.mark.parametrize("thing", SENT)
def test_other_things_of_the_module_are_sent(thing: str) -> None:
    plan(load_job_file(written(f"THING = {thing}{MAPPED}", "map(mapped)")).job())


def test_a_job_that_stays_in_this_process_may_use_a_lock_of_its_module() -> None:
    job = load_job_file(written(f"THING = threading.Lock(){MAPPED}", "map(mapped)")).job()
    plan(job, resolve(command_line={"runtime": "local"}))


@pytest.mark.parametrize("command", ["plan", "check", "run"])
def test_each_command_names_it_before_anything_starts(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from clonos_py.runtime.ray import run

    monkeypatch.setattr(run, "connected", None)
    file = written(f"THING = threading.Lock(){MAPPED}", "map(mapped)")
    assert invoke([command, file]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {file}:"), error
    assert "map: it cannot be sent to a task because of" in error
    assert error.count("\n") == 1
