"""``clonos replay --to-test`` writes a test of a row that a recorded job gave."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from clonos_py.cli.main import invoke
from tests.counting_rates import counting_rates
from tests.jobs import in_process

NUMBERS = itertools.count()
PEOPLE = ["anna", "bert", "carla", "dora"]
ROWS = 120

JOB = """
from __future__ import annotations
from collections.abc import Iterator
from typing import Any
from clonos_py import *
from clonos_py.connectors import *

class Txn(Record):
    id: int
    name: str
    amount: float
    at: Instant
    memo: str

class Priced(Record):
    id: int
    name: str
    price: float
    asked: int

class Scored(Record):
    id: int
    name: str
    score: float
    die: int
    at: int
    nth: int

class Sum(Record):
    name: str
    window_end: Instant
    total: float

class Both(Record):
    id: int
    other: int
    name: str

class Greeting(Record):
    id: int
    text: str

class Ticket(Record):
    id: int
    number: int

def priced(row: Txn, ctx: Context) -> Priced:
    rate = float(ctx.http.get(URL).json()["rate"]) if row.id % 10 == 0 else 1.0
    return Priced(row.id, row.name, row.amount * rate, ctx.time.now())

def greeted(row: Txn, ctx: Context) -> Greeting:
    return Greeting(row.id, f"dear {row.name}, {ctx.random.choice(['yes', 'no', 'perhaps'])}")

async def awaited(row: Txn, ctx: AsyncContext) -> Priced:
    answer = (await ctx.http.get(URL)) if row.id % 10 == 0 else None
    return Priced(row.id, row.name, float(answer.json()["rate"]) if answer else 0.0, ctx.time.now())

class Score(Process[Txn, Scored]):
    seen: int = state(0)

    def on_row(self, row: Txn, ctx: Context) -> Iterator[Scored]:
        self.seen += 1
        die = ctx.random.randint(1, 6)
        yield Scored(row.id, row.name, row.amount * ctx.random.random(), die, ctx.time.now(), self.seen)

class Numbered(Process[Txn, Ticket]):
    # Counts the rows of all keys, which a job must not.
    count = 0

    def on_row(self, row: Txn, ctx: Context) -> Ticket:
        Numbered.count += 1
        return Ticket(row.id, Numbered.count)

class Alarm(Process[Txn, Ticket]):
    # Rings soon after a row, unless another one comes first. Each row asks for the time, but for every third.
    late = processing_timer()
    id: int = state(0)
    rung: int = state(0)

    def on_row(self, row: Txn, ctx: Context) -> Ticket | None:
        self.id = row.id
        if row.id % 3:
            self.late.set(ctx.time.now() + 1)
        return Ticket(row.id, 1_000 + self.rung) if self.rung else None

    @late.fires
    def rings(self, ctx: Context) -> Ticket:
        self.rung += 1
        return Ticket(self.id, -self.rung)

def night(folder: str) -> Job:
    job = Job("night", runtime="local", parallelism=2, checkpoint_interval="30ms", record="1h", frame_rows=10)
    txns = job.source(FileSource(f"{folder}/in-*.jsonl", format="jsonl", schema=Txn)).named("txns")
    txns.map(priced).named("priced").sink(MemorySink()).named("prices")
    txns.map(greeted).named("greeted").sink(MemorySink()).named("letters")
    txns.map(awaited).named("awaited").sink(MemorySink()).named("slow_prices")
    txns.key_by("name").process(Score).named("score").sink(MemorySink()).named("scores")
    timed = txns.with_event_time("at")
    sums = timed.key_by("name").window(tumbling("10s")).aggregate(Sum, total=col("amount").sum()).named("sums")
    sums.sink(MemorySink()).named("totals")
    left, right = timed.filter(col("id") % 2 == 0), timed.filter(col("id") % 2 == 1)
    both = left.select("id", "name", "at").join(
        right.select("name", "at", other=col("id")), on="name", within=tumbling("10s"), into=Both
    )
    both.sink(MemorySink()).named("both")
    return job
"""
MORE = """
import time
import pyarrow as pa

calls = [0]

@service
def limits() -> Iterator[Any]:
    def limit(name: str) -> list[Any]:
        calls[0] += 1
        if calls[0] % 2:
            raise ValueError(f"none for {name}")
        return [name, calls[0]]
    yield limit

class Limited(Record):
    id: int
    name: str
    limit: int
    noise: float

class Rare(Record):
    name: str
    seen: int
    at: int

def limited(row: Txn, ctx: Context) -> Limited:
    try:
        limit = ctx.call(limits, row.name)[1]
    except ServiceError as problem:
        limit = -len(str(problem))
    return Limited(row.id, row.name, limit, ctx.random.gauss(0, 1))

class Ends(Process[Txn, Rare]):
    seen: int = state(0)
    over = event_timer()

    def on_row(self, row: Txn, ctx: Context) -> None:
        self.seen += 1
        self.over.set(row.at + at("1m"))

    @over.fires
    def ends(self, ctx: Context) -> Rare:
        return Rare(ctx.key, self.seen, ctx.time.now())

class Two(CoProcess[Txn, Txn, Rare]):
    seen: int = state(0)

    def on_left(self, row: Txn, ctx: Context) -> None:
        self.seen += 1

    def on_right(self, row: Txn, ctx: Context) -> Rare:
        return Rare(row.name, self.seen, row.id)

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()), ("at", pa.int64())])

def delayed(row: Txn) -> Txn:
    if row.id // 5 % 2:  # of the second file
        time.sleep(0.002)
    return row

def more(folder: str) -> Job:
    job = Job("more", runtime="local", parallelism=2, checkpoint_interval="30ms", record="1h", frame_rows=10)
    txns = job.source(FileSource(f"{folder}/in-*.jsonl", format="jsonl", schema=Txn)).named("txns")
    txns.key_by("name").process(Alarm).named("alarm").sink(MemorySink()).named("alarms")
    txns.rebalance().map(limited).named("limited").sink(MemorySink()).named("limits")
    slow = job.source(FileSource(f"{folder}/in-*.jsonl", format="jsonl", schema=Txn)).named("slow")
    slow.map(delayed).key_by("name").process(Score).named("delays").sink(MemorySink()).named("delayed_scores")
    timed = txns.with_event_time("at")
    timed.key_by("name").process(Ends).named("ends").sink(MemorySink()).named("over")
    timed.key_by("name").process(Score, in_order=True).named("in_order").sink(MemorySink()).named("ordered")
    raw = job.source(FileSource(f"{folder}/in-*.jsonl", format="jsonl", schema=COLUMNS)).named("raw")
    raw.filter(col("amount") > 50).select("id", "name").sink(MemorySink()).named("picked")
    table = txns.key_by("name").aggregate(n=count(), total=col("amount").sum()).named("sums")
    table.sink(UpsertMemorySink("name")).named("table")
    other = job.source(FileSource(f"{folder}/in-0.jsonl", format="jsonl", schema=Txn)).named("other")
    txns.key_by("name").connect(other.key_by("name")).process(Two).named("two").sink(MemorySink()).named("pairs")
    return job
"""
UNFIT = """
def unfit(folder: str) -> Job:
    job = Job("unfit", runtime="local", record="1h", checkpoint_interval="30ms")
    txns = job.source(FileSource(f"{folder}/in-*.jsonl", format="jsonl", schema=Txn)).named("txns")
    txns.key_by("name").process(Numbered).named("numbered").sink(MemorySink()).named("tickets")
    return job
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the job, which has run."""
    made = tmp_path_factory.mktemp("night")
    rows = [
        {"id": n, "name": PEOPLE[n * 7 // 5 % 4], "amount": n + 0.25, "at": n * 1_000_000, "memo": "private"}
        for n in range(ROWS)
    ]
    for file in range(2):
        own = [row for n, row in enumerate(rows) if n // 5 % 2 == file]
        (made / f"in-{file}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in own))
    with counting_rates() as server, chdir(made):
        (made / "job.py").write_text((JOB + MORE + UNFIT).replace("URL", repr(f"{server.address}/EUR")))
        for name in ("night", "more", "unfit"):
            ended = in_process.run(made / f"job.py:{name}", "--folder", ".", "--checkpoints", "checkpoints")
            assert ended.returncode == 0, ended.stderr
    return made


class Written(NamedTuple):
    """How the command ended. ``text``: of the test; empty if it wrote none."""

    returncode: int
    stderr: str
    text: str


Write = Callable[..., Written]


@pytest.fixture
def write(folder: Path) -> Iterator[Write]:
    """Writes ``test_row.py`` for the first row of a sink that meets a condition."""
    path = folder / "test_row.py"

    def write(sink: str, condition: str, *more: str, job: str = "night", to: str = "test_row.py") -> Written:
        said = io.StringIO()
        named = ["--folder", ".", "--checkpoints", "checkpoints", "--to-test", to, "--row", condition, "--sink", sink]
        with chdir(folder), in_process.loaded_once(folder / "job.py"), redirect_stdout(said), redirect_stderr(said):
            code = invoke(["replay", f"job.py:{job}", *named, *more])
        return Written(code, said.getvalue(), path.read_text() if path.exists() else "")

    yield write
    path.unlink(missing_ok=True)


def passes(text: str, folder: Path) -> bool:
    """Whether pytest says that the test passes."""
    other = folder / f"test_other_{next(NUMBERS)}.py"  # pytest imports a name once
    other.write_text(text)
    with in_process.loaded_once(folder / "job.py"), redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", str(other)])
    other.unlink()
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    return code == pytest.ExitCode.OK


def formatted(text: str, folder: Path) -> bool:
    """Whether ruff, without settings, would leave it as it is and finds nothing."""
    path = folder / "formatted.py"
    path.write_text(text)
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    formats = subprocess.run(
        [*ruff, "format", "--isolated", "--diff", str(path)], capture_output=True, text=True, check=False
    )
    finds = subprocess.run(
        [*ruff, "check", "--isolated", "--select", "E4,E7,E9,F,I,W,UP", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    path.unlink()
    assert formats.returncode == 0, formats.stdout
    assert finds.returncode == 0, finds.stdout
    return True


@pytest.mark.parametrize(
    ("sink", "condition", "edited"),
    [
        ("prices", "id == 50", r"asked=(1\d+)"),
        ("scores", "name == 'carla' and nth == 4", r"nth=(4)"),
        ("letters", "id == 7", r"(dear) "),
        ("slow_prices", "id == 20", r"asked=(1\d+)"),
        ("totals", "name == 'anna' and window_end == 20_000_000", r"(20000000), \d"),
        ("both", "id == 10", r"job.Both\((\d+)"),
    ],
)
def test_the_test_passes_until_its_expectation_is_edited(
    write: Write, folder: Path, sink: str, condition: str, edited: str
) -> None:
    done = write(sink, condition)
    assert done.returncode == 0, done.stderr
    assert passes(done.text, folder)
    assert formatted(done.text, folder)
    begin = done.text.index("    assert ")
    expectation, count = re.subn(
        edited,
        lambda found: (
            found[0].replace(found[1], "9" + found[1], 1) if found[1].isdigit() else found[0].replace(found[1], "x")
        ),
        done.text[begin:],
        count=1,
    )
    assert count == 1, done.text
    assert not passes(done.text[:begin] + expectation, folder)


def test_the_test_holds_the_rows_times_numbers_and_answers_of_the_key_only(write: Write) -> None:
    text = write("scores", "name == 'carla' and nth == 4").text
    assert set(re.findall(r'name="(\w+)"', text)) == {"carla"}
    assert len(re.findall(r"job.Txn\(", text)) == 4
    (times,) = re.findall(r"times = {(.*?)}", text, re.DOTALL)
    assert re.findall(r"\d{16}", times) == re.findall(r" at=(\d{16})", text[text.index("assert") :])


def test_the_test_holds_answers_without_headers_that_nothing_reads(write: Write) -> None:
    answered = write("prices", "id == 50").text
    assert 'answers = {"priced": [testing.http_answer(\'{"currency": "EUR", "rate": ' in answered
    assert "headers" not in answered, "the job does not read them"


@pytest.mark.parametrize(("sink", "job"), [("scores", "night"), ("delayed_scores", "more")])
def test_rows_of_several_tasks_of_a_source_keep_their_order(write: Write, sink: str, job: str) -> None:
    """Both files have rows of the key, and the function numbers its rows: in another order they give other rows."""
    done = write(sink, "name == 'anna' and nth == 28", job=job)
    assert done.returncode == 0, done.stderr
    given = [int(number) for number in re.findall(r"job.Txn\(\s*id=(\d+)", done.text)]
    assert len(given) == 28
    assert {number // 5 % 2 for number in given} == {0, 1}


def test_masked_values_are_replaced_everywhere_by_others_of_the_same_length(write: Write, folder: Path) -> None:
    text = write("letters", "id == 7", "--mask", "name", "--mask", "id").text
    assert "bert" not in text
    assert "id == 7" not in text
    (number, name), (same, greeted) = (
        re.findall(r'id=(\d),\s*name="([a-z]{4})"', text)[0],
        re.findall(r'job.Greeting\((\d), "dear ([a-z]{4}), \w+"\)', text)[0],
    )
    assert (number, name) == (same, greeted)
    assert number != "7"
    assert "Values of name, id are made up." in text
    assert passes(text, folder)


def test_what_is_computed_from_masked_values_is_of_the_made_up_ones(write: Write, folder: Path) -> None:
    done = write("totals", "name == 'anna' and window_end == 20_000_000", "--mask", "amount")
    assert passes(done.text, folder)
    assert "12.25" not in done.text
    assert "note: the job computes values from the masked ones" not in done.stderr, "the window has one row"
    computed = write("totals", "total > 40", "--mask", "amount", "--to-test", "test_more.py")
    assert "note: the job computes values from the masked ones" in computed.stderr
    assert passes((folder / "test_more.py").read_text(), folder)
    (folder / "test_more.py").unlink()


def test_keys_that_are_masked_stay_distinct(write: Write, folder: Path) -> None:
    text = write("scores", "name == 'carla' and nth == 4", "--mask", "name").text
    (name,) = set(re.findall(r'name="(\w+)"', text))
    assert (len(name), name == "carla") == (5, False)
    assert passes(text, folder)


@pytest.mark.parametrize(
    ("sink", "condition", "more", "code", "message"),
    [
        ("prices", "id ==", [], 2, "is no Python expression"),
        ("prices", "ids == 1", [], 1, "have no column 'ids'"),
        ("prices", "id == -1", [], 1, "id == -1 holds for no row that a sink got in this interval"),
        ("price", "id == 1", [], 1, "there is no sink 'price': choose from"),
        ("prices", "id == 1", ["--mask", "nam"], 1, "no source has a column 'nam' to mask: txns has id, name"),
        ("prices", "id == 1", ["--to-test", "none/test_row.py"], 2, "must be a file in a folder that exists"),
        ("prices", "id == 1", ["--to-test", "row.py"], 2, "is no name that pytest finds: call it such as"),
        ("prices", "id == 1", ["--trace", "id == 1"], 2, "--to-test is a replay of its own"),
        ("both", "id == 10", ["--mask", "at"], 1, "with the masked values the job gives other rows"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    write: Write, folder: Path, sink: str, condition: str, more: list[str], code: int, message: str
) -> None:
    before = sorted(folder.iterdir())
    done = write(sink, condition, *more)
    assert (done.returncode, done.text) == (code, "")
    (line,) = [line for line in done.stderr.splitlines() if message in line]
    assert sorted(folder.iterdir()) == before, line


def test_a_file_that_exists_stays(write: Write, folder: Path) -> None:
    (folder / "test_row.py").write_text("mine")
    done = write("prices", "id == 1")
    assert (done.returncode, done.text) == (2, "mine")
    assert "test_row.py exists: choose another name, or remove it" in done.stderr


def test_a_row_that_its_rows_do_not_give_again_has_no_test(write: Write) -> None:
    done = write("tickets", "number > 10", job="unfit")
    assert (done.returncode, done.text) == (1, "")
    assert "rows of other keys mattered" in done.stderr


@pytest.mark.parametrize(
    ("sink", "condition"),
    [
        ("alarms", "number == -3"),
        ("alarms", "number == 1_003"),
        ("limits", "id == 30"),
        ("limits", "id == 31"),
        ("over", "name == 'dora'"),
        ("ordered", "name == 'bert' and nth == 5"),
        ("picked", "id == 70"),
        ("table", "name == 'anna' and n > 3"),
    ],
)
def test_other_operators_and_rows_without_a_class_have_tests(
    write: Write, folder: Path, sink: str, condition: str
) -> None:
    done = write(sink, condition, job="more")
    assert done.returncode == 0, done.stderr
    assert passes(done.text, folder)
    assert formatted(done.text, folder)
    if sink == "picked":
        assert "The job does not read these columns of raw: at." in done.text
        assert 'Row = job.more(folder=".").record_of("raw")' in done.text
