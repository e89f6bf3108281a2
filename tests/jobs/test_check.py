"""``clonos check`` names operator, line and remedy of code that a replay could not repeat, and no other code."""

from __future__ import annotations

import itertools
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
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.operators import Sink


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


class Broken(Sink):
    def on_rows(self, rows, side):
        raise ValueError("no such table")


class Visible(SinkDefinition):
    delivery = Delivery("idempotent")

    def create(self, schema):
        return Broken()


def job() -> Job:
    job = Job("suspects")
    rows = job.source(MemorySource([Row(i, f"name {i}") for i in range(20)]))
    for function in (clock, calendar, dice, shuffled, identity, token, network, threads, sets, fine, patient):
        rows.map(function).named(function.__name__).sink(BlackholeSink()).named(f"to-{function.__name__}")
    rows.flat_map(first_time()).named("first_time").sink(BlackholeSink()).named("to-first_time")
    rows.map(remembered).named("remembered").sink(BlackholeSink()).named("to-remembered")
    rows.key_by("id").process(Remembers).named("remembers").sink(BlackholeSink()).named("to-remembers")
    rows.sink(Visible()).named("visible")
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
def check_result(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """The exit code and the output of the command for a job of many suspects."""
    file = tmp_path_factory.mktemp("suspects") / "suspects.py"
    file.write_text(JOB)
    from click.testing import CliRunner

    from clonos_py.cli.main import clonos

    result = CliRunner().invoke(clonos, ["check", str(file), "--live"], standalone_mode=False)
    assert result.exception is None, result.output
    return result.return_value, result.output


@pytest.mark.parametrize("operator", REMEDIES)
def test_a_direct_call_is_reported_with_its_line_and_remedy(check_result: tuple[int, str], operator: str) -> None:
    line = next(n for n, text in enumerate(JOB.splitlines(), 1) if text.endswith(f"# LINE {operator}"))
    expected = rf"suspects\.py:{line}: operator '{operator}' {REMEDIES[operator]}"
    assert re.search(expected, check_result[1]), check_result[1]


def test_the_order_of_a_set_is_detected_by_comparison(check_result: tuple[int, str]) -> None:
    assert re.search(
        r"suspects\.py:\d+: operator 'sets' gave another row 0 .* not on the order of a set", check_result[1]
    ), check_result[1]


def test_state_that_outlives_a_call_is_detected_if_it_changes_the_output(check_result: tuple[int, str]) -> None:
    expected = (
        r"suspects\.py:\d+: operator 'first_time' gave another row 0 .*name 0'}, then None.* variables that outlive"
    )
    assert re.search(expected, check_result[1]), check_result[1]
    assert "'remembered'" not in check_result[1]


def test_functions_that_use_ctx_are_not_reported_and_the_exit_code_is_1_for_others(
    check_result: tuple[int, str],
) -> None:
    assert "'fine'" not in check_result[1]
    assert "'patient'" not in check_result[1], check_result[1]
    assert check_result[0] == 1


def test_a_sink_whose_rows_are_visible_at_once_is_tried_on_request(check_result: tuple[int, str]) -> None:
    assert "operator 'visible' failed: ValueError: no such table" in check_result[1]


@pytest.mark.thorough  # as below, and in the job with notes
def test_nothing_is_found_in_an_example(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(ROOT / "examples" / "fraud.py"), "--rows", "50"]) == 0
    assert "nothing found" in capfd.readouterr().out


def test_rows_whose_service_did_not_answer_are_no_finding_and_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke(["check", str(ROOT / "examples" / "quotes.py"), "--rows", "10"]) == 0
    printed = capfd.readouterr().out
    assert "nothing found" in printed
    assert "failed on 10 of 10 rows, first with: " in printed


FAILING = """
import math
from clonos_py import Context, CoProcess, DeadLetter, Instant, Job, Record, col, event_timer
from clonos_py.connectors import BlackholeSink, FileSink, FileSource, MemorySource
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.operators import Sink


class Row(Record):
    id: int
    share: float = 1.0


class Timed(Record):
    id: int
    at: Instant


class Due(CoProcess[Timed, Row, Row]):
    due = event_timer()

    def on_left(self, row: Timed, ctx: Context) -> None:
        pass

    def on_right(self, row: Row, ctx: Context) -> None:
        pass

    @due.fires
    def on_due(self, ctx: Context) -> None:
        pass


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


def job(cases: str) -> Job:
    job = Job("failing")
    for case in cases.split("+"):
        add(job, case)
    return job


def add(job: Job, case: str) -> None:
    given = MemorySource([] if case == "made-up" else [Row(i) for i in range(6)], schema=Row)
    rows = job.source(given).named(f"in-{case}")
    match case:
        case "raises" | "made-up":
            rows.map(half).named(f"half-{case}").sink(BlackholeSink()).named(f"to-{case}")
        case "caught":
            good, bad = rows.map(half).named("half").catch()
            good.sink(BlackholeSink()).named("good")
            bad.sink(BlackholeSink()).named("bad")
        case "nan":
            rows.map(share).sink(FileSink(FOLDER + "/out")).named("file")
        case "held":
            timed = job.source(MemorySource([Timed(1, 1_800_000_000_000_000)]), event_time="at").named("timed")
            due = timed.key_by("id").connect(rows.key_by("id")).process(Due).named("due")
            due.sink(BlackholeSink()).named("held")
        case "fine":
            rows.sink(FileSink(FOLDER + "/out")).named("file")
        case "malformed":
            job.source(FileSource(FOLDER + "/rows.jsonl", Row, "jsonl")).named("rows").sink(BlackholeSink()).named("b")
            rows.sink(BlackholeSink()).named("a")
        case delivery:
            rows.sink(Database(delivery)).named("database")
"""
FAILURES = {
    "raises": r"operator 'half-raises' failed on 3 of 6 rows, first with: .*ZeroDivision.*catch\(\)",
    "nan": r"operator 'file' failed: .*column 'share' has a NaN or an infinity",
    "malformed": r"source 'rows' cannot be read: .*rows\.jsonl, line 1 .*malformed record",
    "transactional": r"operator 'database' failed: ValueError: no such table",
}
NOTES = {
    "caught": [r"operator 'half' failed on 3 of 6 rows, first with: .*ZeroDivisionError"],
    "made-up": [r"source 'in-made-up' gave no rows", r"operator 'half-made-up' failed on \d+ of 200 rows"],
    "fine": [],
    "held": [],
    "idempotent": [r"sink 'database' makes its rows visible, so it is tried only with --live"],
}


def checked(folder: Path, capfd: pytest.CaptureFixture[str], cases: str) -> tuple[int, list[str], list[str]]:
    """The exit code, the lines of the report and the warnings, for a job with all these cases: a check starts two
    processes."""
    file = folder / f"{re.sub('[^a-z]', '_', cases)}_case.py"  # a module of its own
    file.write_text(f"FOLDER = {str(folder)!r}\n{FAILING}")
    (folder / "rows.jsonl").write_text("{\n")
    code = invoke(["check", str(file), "--cases", cases])
    assert not (folder / "out").exists()
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    return code, lines, [line for line in (*lines, *printed.err.splitlines()) if line.startswith("warning: ")]


def test_errors_that_would_end_the_job_are_findings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = checked(tmp_path, capfd, "+".join(FAILURES))
    assert code == 1
    for expected in FAILURES.values():
        assert any(re.search(rf"case\.py:\d+: {expected}", line) for line in lines if not line.startswith("note:")), (
            lines
        )
    assert (tmp_path / "written").exists()


def test_what_would_not_end_the_job_is_a_note_and_no_finding(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines, warnings = checked(tmp_path, capfd, "+".join(NOTES))
    assert code == 0
    for expected in itertools.chain.from_iterable(NOTES.values()):
        assert any(re.match(f"note: {expected}", line) for line in lines), lines
    assert sum(line.startswith("note:") for line in lines) == sum(map(len, NOTES.values())), "and there are no others"
    assert not (tmp_path / "written").exists()
    (held,) = warnings
    assert "source 'in-held' has no event time" in held


HELD = """
from collections.abc import Iterator

from clonos_py import Context, CoProcess, Instant, Job, Record, event_timer
from clonos_py.connectors import BlackholeSink, MemorySource


class Order(Record):
    id: int
    at: Instant


class Rule(Record):
    id: int


class Due(CoProcess[Order, Rule, Order]):
    due = event_timer()

    def on_left(self, order: Order, ctx: Context) -> Iterator[Order]:
        yield order

    def on_right(self, rule: Rule, ctx: Context) -> Iterator[Order]:
        return iter(())

    @due.fires
    def on_due(self, ctx: Context) -> Iterator[Order]:
        return iter(())


job = Job("held")
now = 1_800_000_000_000_000
orders = job.source(MemorySource([Order(1, now)]), event_time="at").named("orders")
rules = job.source(MemorySource([Rule(1)])).named("rules")
orders.key_by("id").connect(rules.key_by("id")).process(Due).sink(BlackholeSink())
"""


@pytest.mark.parametrize("command", [["plan"], ["run", "--runtime", "local"]], ids=lambda words: words[0])
def test_a_source_that_holds_event_time_back_is_a_warning(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"held_in_{command[0]}.py"
    file.write_text(HELD)
    assert invoke([command[0], str(file), *command[1:]]) == 0
    printed = "".join(capfd.readouterr())
    (line,) = [line for line in printed.splitlines() if "has no event time" in line]
    assert line.startswith("warning: ")
    assert "source 'rules'" in line
    assert "'process' waits until 'rules' ends; give it an event time" in line
