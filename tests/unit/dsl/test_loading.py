"""Job files: the jobs in them, their parameters, and errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos_py import GraphError
from clonos_py.dsl.loading import Parameter, load_job_file


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Path]:
    """A folder for job files; added modules and paths are removed afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def job_file(folder: Path, text: str, name: str = "my_job_file.py") -> str:
    (folder / name).write_text(f"from clonos_py import Job\n{text}\n")
    return str(folder / name)


def test_the_only_job_of_a_file_is_found(write: Path) -> None:
    file = load_job_file(job_file(write, "job = Job('one')\nalias = job"))
    assert file.job().name == "one"
    assert file.parameters == {}
    assert file.module == "my_job_file"


def test_one_of_several_jobs_is_named(write: Path) -> None:
    path = job_file(write, "a = Job('a')\nb = Job('b')")
    assert load_job_file(f"{path}:b").job().name == "b"
    with pytest.raises(GraphError, match=r"my_job_file.py has 2 jobs; it has a, b: name one, as my_job_file.py:a"):
        load_job_file(path)
    with pytest.raises(GraphError, match=r"my_job_file.py has no job 'c'; it has a, b"):
        load_job_file(f"{path}:c")


def test_a_named_function_must_declare_that_it_returns_a_job(write: Path) -> None:
    path = job_file(write, "job = Job('a')\ndef nightly():\n    return Job('b')")
    with pytest.raises(GraphError, match=r"my_job_file.py:3: nightly\(\) has no `-> Job`; add it"):
        load_job_file(f"{path}:nightly")


def test_parameters_of_a_job_function_become_options(write: Path) -> None:
    text = (
        "def job(topic: str, rate: float | None = None, *, limit: int = 3) -> Job:\n    return Job(f'{topic}-{limit}')"
    )
    file = load_job_file(job_file(write, text))
    assert list(file.parameters.values()) == [
        Parameter("topic", str, None, required=True),
        Parameter("rate", float, None),
        Parameter("limit", int, 3),
    ]
    assert file.job({"topic": "bids", "limit": 5}).name == "bids-5"
    assert file.job({"topic": "bids", "limit": None}).name == "bids-3"
    with pytest.raises(GraphError, match=r"my_job_file.py needs a value for topic"):
        file.job({})


def test_a_job_file_is_not_run_as_main_and_can_import_its_neighbours(write: Path) -> None:
    (write / "my_job_names.py").write_text("NAME = 'neighbour'\n")
    file = load_job_file(
        job_file(write, "from my_job_names import NAME\nassert __name__ != '__main__'\njob = Job(NAME)")
    )
    assert file.job().name == "neighbour"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "my_job_file.py has no job; define one: job = Job"),
        ("def job(out: str = 'o'):\n    return Job(out)", "my_job_file.py:2: job() has no `-> Job`; add it"),
        ("def job() -> None: ...", "my_job_file.py has no job; define one"),
        ("1 / 0", "my_job_file.py:2: ZeroDivisionError: division by zero"),
        ("import no_such_module", "my_job_file.py:2: ModuleNotFoundError"),
        ("def (", "my_job_file.py:2: SyntaxError"),
        ("job = Job('a b')", "Job: 'a b' is not a valid job name"),
        ("raise SystemExit(3)", "my_job_file.py:2: SystemExit: 3"),
        ("assert 1 > 2", "my_job_file.py:2: AssertionError"),
        ("class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd", "Odd: (its str raised KeyError)"),
        ("async def job() -> Job:\n    return Job('a')", "job() is async, but it only defines a job; write def"),
        (
            "from my_helper import ratio\nratio(0)",
            "my_job_file.py:3: ZeroDivisionError: division by zero (at ",
        ),
        ("import my_failing_helper", "my_job_file.py:2: KeyError: 'rate' (at my_failing_helper.py:2 in <module>)"),
        (
            "job = Job('a')\njob.run(runtime='local')",
            "3: run: the clonos command loads my_job_file.py",
        ),
        ("job = Job('a')\nhandle = job.start()", "3: start: the clonos command loads my_job_file.py"),
        (
            "def job() -> Job:\n    Job('a').run()\n    return Job('a')",
            'put this line below: if __name__ == "__main__":',
        ),
        ("def job(rows: int = 'x') -> Job: ...", "parameter 'rows' is int, its default is 'x'"),
        ("def job(names: list[str]) -> Job: ...", "parameter 'names' cannot be an option; use str, int, float or bool"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(write: Path, text: str, message: str) -> None:
    (write / "my_helper.py").write_text("def ratio(n):\n    return 1 / n\n")
    (write / "my_failing_helper.py").write_text("rates = {}\nrate = rates['rate']\n")
    with pytest.raises(GraphError) as caught:
        load_job_file(job_file(write, text)).job()
    assert message in str(caught.value)
    assert not str(caught.value).endswith(": ")


def test_a_job_runs_after_the_file_was_loaded(write: Path) -> None:
    """Also if loading the file before failed."""
    with pytest.raises(GraphError, match="KeyError"):
        load_job_file(job_file(write, "raise KeyError", "my_failing_file.py"))
    with pytest.raises(GraphError, match="job 'a' has no"):
        load_job_file(job_file(write, "job = Job('a')")).job().run(runtime="local")


def test_a_file_whose_name_has_a_dot_is_refused_before_a_task_cannot_import_it(write: Path) -> None:
    with pytest.raises(GraphError, match=r"hot.v2.py: a task cannot import a module with a dot in its name"):
        load_job_file(job_file(write, "job = Job('x')", "hot.v2.py"))


def test_a_function_that_returns_no_job_is_refused(write: Path) -> None:
    file = load_job_file(job_file(write, "def job() -> Job:\n    return None"))
    with pytest.raises(GraphError, match=r"job\(\) gave NoneType, not a Job"):
        file.job()


def test_a_function_that_fails_is_named_with_its_line(write: Path) -> None:
    file = load_job_file(job_file(write, "def job(n: int = 0) -> Job:\n    return 1 / n"))
    with pytest.raises(GraphError, match=r"my_job_file.py:3: ZeroDivisionError: division by zero"):
        file.job()


def test_a_missing_file_or_one_that_hides_a_module_is_refused(write: Path) -> None:
    with pytest.raises(GraphError, match=r"nothing.py: no such job file; give a Python file"):
        load_job_file(str(write / "nothing.py"))
    with pytest.raises(GraphError, match=r"json.py: there is a module 'json' already .*; rename the file"):
        load_job_file(job_file(write, "job = Job('x')", "json.py"))
    with pytest.raises(GraphError, match=r"antigravity.py: Python has a module 'antigravity' of its own"):
        load_job_file(job_file(write, "job = Job('x')", "antigravity.py"))
