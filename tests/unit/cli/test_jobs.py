"""Commands that take a job file: parameters as options, settings from every place, their output."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from clonos_py.cli.main import invoke

numbers = itertools.count()
WriteJob = Callable[[str], str]

ONE_JOB = """
from clonos_py.connectors import BlackholeSink, MemorySource
from clonos_py.dsl.job import Job
from clonos_py.model.record import Record

class Row(Record):
    n: int

job = Job("planned", parallelism=2)
job.source(MemorySource([Row(1)])).sink(BlackholeSink())
"""

WITH_PARAMETERS = """
from clonos_py.dsl.job import Job

def job(topic: str, most_rows: int = 5, loud: bool = False) -> Job:
    return Job(f"{topic}-{most_rows}-{loud}", linger="7ms")
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLONOS_LINGER", raising=False)


@pytest.fixture
def write_job(tmp_path: Path) -> WriteJob:
    def write(text: str) -> str:
        name = f"job_file_{next(numbers)}.py"
        (tmp_path / name).write_text(text)
        return name

    return write


def config_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[str]]:
    assert invoke(["config", *arguments]) == 0, capsys.readouterr().err
    return {words[0]: words[1:] for words in map(str.split, capsys.readouterr().out.splitlines())}


def test_config_shows_each_value_and_its_origin(
    write_job: WriteJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("clonos.toml").write_text('standbys = 2\nlinger = "1ms"\n')
    monkeypatch.setenv("CLONOS_LINGER", "5ms")
    shown = config_of(capsys, write_job(ONE_JOB), "--sharing-depth", "1", "--kill", "a[0]@3s", "--kill", "b[1]@4s")
    assert shown["parallelism"] == ["2", "Job(...)"]
    assert shown["standbys"] == ["2", "clonos.toml"]
    assert shown["linger"] == ["5ms", "CLONOS_LINGER"]
    assert shown["sharing_depth"] == ["1", "--sharing-depth"]
    assert shown["kills"] == ["a[0]@3s,", "b[1]@4s", "--kill"]
    assert shown["seed"] == ["0", "default"]


def test_parameters_of_a_job_function_are_options(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    name = write_job(WITH_PARAMETERS)
    assert config_of(capsys, name, "--topic", "bids", "--parallelism", "3")["parallelism"] == ["3", "--parallelism"]
    assert config_of(capsys, "--topic", "bids", name, "--most-rows", "9", "--loud")["linger"] == ["7ms", "Job(...)"]


def test_the_help_of_a_command_shows_the_parameters_of_the_job(
    write_job: WriteJob, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_job(WITH_PARAMETERS)
    assert invoke(["run", name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--most-rows INTEGER" in text
    assert "[default: 5]" in text
    assert "--loud / --no-loud" in text
    assert "--topic TEXT" in text


@pytest.mark.parametrize("command", ["run", "plan", "config"])
def test_the_help_of_every_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"clonos {command} hot_auctions.py" in text
    assert "--parallelism N" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--topic", "x", "--most-rows", "many"], 2, "error: Invalid value for '--most-rows'"),
        (["--topic", "x", "--most-cows", "3"], 2, "error: No such option '--most-cows'."),
        ([], 2, "error: Missing option '--topic'. (see clonos config --help)"),
        (["--topic", "x", "--parallelism", "0"], 1, "error: parallelism (--parallelism): '0' is not a whole number"),
        (["--topic", "x", "--fresh"], 1, "error: fresh = true (--fresh) contradicts checkpoints = none (default)"),
    ],
)
def test_wrong_options_are_reported_in_one_line(
    write_job: WriteJob, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert invoke(["config", write_job(WITH_PARAMETERS), *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_parameter_with_the_name_of_a_setting_is_refused(
    write_job: WriteJob, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_job("from clonos_py.dsl.job import Job\ndef job(seed: int = 1) -> Job:\n    return Job('x')\n")
    assert invoke(["config", name]) == 1
    assert "parameter 'seed' has the name of an option of clonos; rename it" in capsys.readouterr().err


def test_a_missing_file_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "nowhere.py"]) == 1
    assert capsys.readouterr().err.startswith("error: nowhere.py: no such job file")


def test_plan_shows_the_plan_in_every_format(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    name = write_job(ONE_JOB)
    for format, beginning in (("text", "planned: "), ("mermaid", "flowchart LR"), ("svg", "<svg ")):
        assert invoke(["plan", name, "--format", format]) == 0
        assert capsys.readouterr().out.startswith(beginning)
