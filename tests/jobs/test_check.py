"""``clonos check`` names operator, line and remedy of code that a replay could not repeat, and no other code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clonos_py.cli.main import invoke

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import random, secrets, socket, threading, time, uuid
from collections.abc import Callable, Iterator
from datetime import datetime

import numpy as np

from clonos_py import AsyncContext, Context, Job, Process, Record, service, state
from clonos_py.connectors import BlackholeSink, MemorySource


class Row(Record):
    id: int
    name: str


class Out(Record):
    text: str


@service
def weather() -> Iterator[Callable[[], float]]:
    yield lambda: time.time() + random.random()


def clock(row: Row) -> Out:
    return Out(str(time.time()))  # LINE clock


def calendar(row: Row) -> Out:
    return Out(str(datetime.now().year))  # LINE calendar


def dice(row: Row) -> Out:
    return Out(str(random.randint(1, 6)))  # LINE dice


def shuffled(row: Row) -> Out:
    return Out(str(np.random.random()))  # LINE shuffled


def identity(row: Row) -> Out:
    return Out(str(uuid.uuid4()))  # LINE identity


def token(row: Row) -> Out:
    return Out(secrets.token_hex(4))  # LINE token


def network(row: Row) -> Out:
    with socket.socket() as opened:  # LINE network
        return Out(str(opened.family))


def threads(row: Row) -> Out:
    thread = threading.Thread(target=print)  # LINE threads
    return Out(str(thread.daemon))


def sets(row: Row) -> Out:
    return Out("".join({"a", "b", "c", row.name, "d" * 3, "e" * 4, "f" * 5}))


class Remembers(Process[Row, Out]):
    seen: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Iterator[Out]:
        self.seen += 1
        time.sleep(0)  # LINE remembers
        yield Out(str(self.seen))


def first_time() -> Callable[[Row], Iterator[Out]]:
    seen = set()

    def unseen(row: Row) -> Iterator[Out]:
        if row.name not in seen:
            seen.add(row.name)
            yield Out(row.name)

    return unseen


shouted: dict[str, str] = {}


def remembered(row: Row) -> Out:
    return Out(shouted.setdefault(row.name, row.name.upper()))


def fine(row: Row, ctx: Context) -> Out:
    return Out(f"{ctx.time.now()} {ctx.random.random()} {sorted({row.name, 'x'})} {random.Random(row.id).random()}")


async def patient(row: Row, ctx: AsyncContext) -> Out:
    await ctx.sleep("1ms")
    return Out(f"{ctx.time.now()} {await ctx.call(weather)}")


def job() -> Job:
    job = Job("suspects")
    rows = job.source(MemorySource([Row(i, f"name {i}") for i in range(20)]))
    for function in (clock, calendar, dice, shuffled, identity, token, network, threads, sets, fine, patient):
        rows.map(function).named(function.__name__).sink(BlackholeSink()).named(f"to-{function.__name__}")
    rows.flat_map(first_time()).named("first_time").sink(BlackholeSink()).named("to-first_time")
    rows.map(remembered).named("remembered").sink(BlackholeSink()).named("to-remembered")
    rows.key_by("id").process(Remembers).named("remembers").sink(BlackholeSink()).named("to-remembers")
    return job
"""

REMEDIES = {
    "clock": r"calls time\.time\(\); call ctx\.time\.now\(\)",
    "calendar": r"calls datetime\.now\(\); call ctx\.time\.now\(\)",
    "dice": r"calls random\.randint\(\); use ctx\.random",
    "shuffled": r"calls numpy\.random\.\w+\(\); use ctx\.random",
    "identity": r"calls uuid\.uuid4\(\); make it of logged bits",
    "token": r"calls secrets\.token_hex\(\); use ctx\.random",
    "network": r"calls socket\.\S+\(\); use ctx\.http",
    "threads": r"calls threading\.\S+\(\); write an `async def` function",
    "remembers": r"calls time\.sleep\(\); set a timer, or await ctx\.sleep",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """The exit code and the output of the command for a job of many suspects."""
    file = tmp_path_factory.mktemp("suspects") / "suspects.py"
    file.write_text(JOB)
    from click.testing import CliRunner

    from clonos_py.cli.main import clonos

    result = CliRunner().invoke(clonos, ["check", str(file), "--live"], standalone_mode=False)
    assert result.exception is None, result.output
    return result.return_value, result.output


@pytest.mark.parametrize("operator", REMEDIES)
def test_a_direct_call_is_reported_with_its_line_and_remedy(told: tuple[int, str], operator: str) -> None:
    line = next(n for n, text in enumerate(JOB.splitlines(), 1) if text.endswith(f"# LINE {operator}"))
    expected = rf"suspects\.py:{line}: operator '{operator}' {REMEDIES[operator]}"
    assert re.search(expected, told[1]), told[1]


def test_the_order_of_a_set_is_detected_by_comparison(told: tuple[int, str]) -> None:
    assert re.search(r"suspects\.py:\d+: operator 'sets' gave another row 0 .* not on the order of a set", told[1]), (
        told[1]
    )


def test_state_that_outlives_a_call_is_detected_if_it_changes_the_output(told: tuple[int, str]) -> None:
    expected = (
        r"suspects\.py:\d+: operator 'first_time' gave another row 0 .*name 0'}, then None.* variables that outlive"
    )
    assert re.search(expected, told[1]), told[1]
    assert "'remembered'" not in told[1]


def test_functions_that_use_ctx_are_not_reported_and_the_exit_code_is_1_for_others(told: tuple[int, str]) -> None:
    assert "'fine'" not in told[1]
    assert "'patient'" not in told[1], told[1]
    assert told[0] == 1


@pytest.mark.parametrize("example", ["fraud", "quotes"])
def test_nothing_is_found_in_the_examples(example: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(ROOT / "examples" / f"{example}.py"), "--rows", "50"]) == 0
    assert "nothing found" in capfd.readouterr().out


def test_rows_whose_service_did_not_answer_are_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(ROOT / "examples" / "quotes.py"), "--rows", "10"]) == 0
    assert "failed on 10 of 10 rows, first with: " in capfd.readouterr().out


FAILING = """
import math
from clonos_py import DeadLetter, Job, Record, col
from clonos_py.connectors import BlackholeSink, FileSink, FileSource, MemorySource
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.operators import Sink


class Row(Record):
    id: int
    share: float = 1.0


class Broken(Sink):
    def on_rows(self, rows, side):
        open(FOLDER + "/written", "w").close()
        raise ValueError("no such table")


class Database(SinkDefinition):
    def __init__(self, delivery: str) -> None:
        self.delivery = Delivery(delivery)

    def create(self, schema):
        return Broken()


def half(row: Row) -> Row:
    return Row(row.id, 1 / (row.id % 2))


def share(row: Row) -> Row:
    return Row(row.id, math.nan if row.id == 3 else 1.0)


def job(case: str) -> Job:
    job = Job("failing")
    rows = job.source(MemorySource([] if case == "made-up" else [Row(i) for i in range(6)], schema=Row)).named("in")
    match case:
        case "raises" | "made-up":
            rows.map(half).named("half").sink(BlackholeSink())
        case "caught":
            good, bad = rows.map(half).named("half").catch()
            good.sink(BlackholeSink()).named("good")
            bad.sink(BlackholeSink()).named("bad")
        case "nan":
            rows.map(share).sink(FileSink(FOLDER + "/out")).named("file")
        case "fine":
            rows.sink(FileSink(FOLDER + "/out")).named("file")
        case "malformed":
            job.source(FileSource(FOLDER + "/rows.jsonl", Row, "jsonl")).named("rows").sink(BlackholeSink()).named("b")
            rows.sink(BlackholeSink()).named("a")
        case delivery:
            rows.sink(Database(delivery)).named("database")
    return job
"""


@pytest.mark.parametrize(
    ("case", "code", "told"),
    [
        (
            "raises",
            1,
            r"case\.py:\d+: operator 'half' failed on 3 of 6 rows, first with: .*ZeroDivision.*catch\(\)",
        ),
        ("caught", 0, r"note: operator 'half' failed on 3 of 6 rows, first with: .*ZeroDivisionError"),
        ("made-up", 0, r"note: source 'in' gave no rows.*note: operator 'half' failed on \d+ of 200 rows"),
        ("nan", 1, r"case\.py:\d+: operator 'file' failed: .*column 'share' has a NaN or an infinity"),
        ("fine", 0, r"2 operators|1 operator"),
        ("malformed", 1, r"case\.py:\d+: source 'rows' cannot be read: .*rows\.jsonl, line 1 .*malformed record"),
        ("transactional", 1, r"case\.py:\d+: operator 'database' failed: ValueError: no such table"),
        ("idempotent", 0, r"note: sink 'database' makes its rows visible, so it is tried only with --live"),
        ("idempotent --live", 1, r"operator 'database' failed: ValueError: no such table"),
    ],
)
def test_errors_that_would_end_the_job_are_reported_with_an_exit_code(
    case: str, code: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"{re.sub('[^a-z]', '_', case)}_case.py"  # a module of its own
    file.write_text(f"FOLDER = {str(tmp_path)!r}\n{FAILING}")
    (tmp_path / "rows.jsonl").write_text("{\n")
    name, *live = case.split()
    assert invoke(["check", str(file), "--case", name, *live]) == code
    out = capfd.readouterr().out
    assert re.search(told, out, re.DOTALL), out
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "written").exists() == (name == "transactional" or bool(live))
