"""``clonos replay --with NEW.py --diff``: changed code on a record, compared with the code that ran."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos_py.bench.oracle import expected
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark.new_users import rows_of
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.snapshots import Manifest
from clonos_py.process.progress import progress_of
from tests.jobs.in_process import loaded_once, run, run_until

HEAD = """
from collections.abc import Iterator
from clonos_py import Context, Instant, Job, Process, Record, col, count, processing_timer, service, state, tumbling
from clonos_py.connectors import FileSource, FileSink
from clonos_py.model.errors import ServiceError

class Row(Record):
    id: int
    key: int
    at: Instant

class Seen(Record):
    id: int
    key: int
    drawn: float
    asked: int
    at: int

@service
def prices() -> Iterator:
    asked = []
    def price(key: int) -> int:
        asked.append(key)
        return 100 * key + len(asked)
    yield price
"""
LOOK = """
class Look(Process[Row, Seen]):
    def on_row(self, row: Row, ctx: Context) -> Iterator[Seen]:
        yield Seen(row.id, row.key, ctx.random.random(), ctx.call(prices, row.key), ctx.time.now())

job = Job("watched")
rows = job.source(FileSource("rows.jsonl", Row), event_time="at")
rows.key_by("key").process(Look).named("look").sink(FileSink("out")).named("seen")
"""
ROWS = 1_200
QUICK = ("--runtime", "local", "--checkpoints", "ck", "--record", "1h", "--checkpoint-interval", "20ms")

Compare = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a job with a record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLONOS_DEBUG", raising=False)
    lines = (json.dumps({"id": n, "key": n % 7, "at": n * 1_000}) for n in range(ROWS))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))

    def run_recorded(text: str, *more: str, head: str = HEAD) -> None:
        (tmp_path / "watched.py").write_text(head + text)
        ended = run(tmp_path / "watched.py", *QUICK, *more)
        assert ended.returncode == 0, ended.stderr

    return run_recorded


@pytest.fixture
def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Compares the recorded job with another one. Returns the exit code and what was printed."""

    def compared(text: str, *more: str, head: str = HEAD) -> tuple[int, str, str]:
        (tmp_path / "changed.py").write_text(head + text)
        capsys.readouterr()
        given = ["replay", "watched.py", "--checkpoints", "ck", "--with", "changed.py", "--diff", *more]
        with loaded_once(tmp_path / "watched.py"):
            code = invoke(given)
        said = capsys.readouterr()
        return code, said.out, said.err

    return compared


def middle(recorded: Callable[..., None], folder: Path, text: str, *more: str) -> tuple[str, ...]:
    """Runs a job, and returns the options for an interval that begins when its operator has state."""
    for _ in range(9):  # a crowded machine may take the first checkpoints before it reads, and the last one at the end
        for left in ("ck", "out"):
            shutil.rmtree(folder / left, ignore_errors=True)
        recorded(text, "--record", "2s", *more)
        store = CheckpointStore(str(folder / "ck"), "watched")
        last = store.manifests()[-1].checkpoint
        bases = [base for base in store.bases() if base.checkpoint < last and _has_state(base) and not _has_ended(base)]
        if bases:
            return "--checkpoint", str(bases[0].checkpoint), "--until", str(last)
    raise AssertionError("no checkpoint in the middle of the job")


def _has_ended(base: Manifest) -> bool:
    """Whether the sources had read everything."""
    return all(progress_of(handle).ended >= 0 for handle in base.tasks if handle.task.vertex.startswith("source"))


def _has_state(base: Manifest) -> bool:
    return any(chunk.rows for part in base.parts("totals") for chunks in part.tables.values() for chunk in chunks)


def differences(folder: Path, sink: str, kind: str) -> list[dict[str, object]]:
    file = folder / "differences" / f"{sink}.{kind}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


FAILS = LOOK.replace(
    "        yield",
    """        if row.id == 1_190:
            raise ValueError("no price for it")
        yield""",
)


@pytest.mark.parametrize(
    "more",
    [
        ("--parallelism", "2"),
        ("--parallelism", "2", "--protocol", "uncoordinated"),
        ("--parallelism", "2", "--checkpoint-interval", "1h"),
    ],
    ids=["aligned", "uncoordinated", "before the first checkpoint"],
)
def test_a_comparison_goes_on_to_the_failure_of_the_job(
    tmp_path: Path, recorded: Callable[..., None], compare: Compare, more: tuple[str, ...]
) -> None:
    """With all rows that the failed function got, also those that came with the one at which it failed."""
    with pytest.raises(AssertionError, match="no price for it"):
        recorded(FAILS, *more, "--frame-rows", "20")
    code, out, err = compare(FAILS)
    assert code == 0, err
    assert "to the failure of the job" in err
    assert "ValueError: no price for it" in out
    assert "the changed code fails there, too" in out
    assert " 0 only before, 0 only after, 0 changed" in out
    code, out, err = compare(LOOK)
    assert code == 0, out + err
    assert "the changed code does not" in out
    assert "left the record 1 times, first where operator 'look' asks for a random number at row {'id': 1190, " in out
    code, out, err = compare(LOOK, "--ask", "live", "--out", "rows")
    assert code == 1, err
    assert " 0 only before, " in out
    only_after = [row["id"] for row in differences(tmp_path / "rows", "seen", "only-after")]
    assert 1_190 in only_after
    assert len(only_after) <= 20, "those of the frame with the row, as far as they were lost"


@pytest.mark.parametrize(
    "more",
    [("--parallelism", "2", "--kill", "look[0]@30ms"), ("--protocol", "unaligned"), ("--protocol", "uncoordinated")],
    ids=["aligned", "unaligned", "uncoordinated"],
)
def test_the_same_code_gives_the_same_rows(
    recorded: Callable[..., None], compare: Compare, more: tuple[str, ...]
) -> None:
    recorded(LOOK, *more)
    code, out, err = compare(LOOK)
    assert code == 0, err
    assert f"seen: {ROWS:,} rows before, {ROWS:,} after: {ROWS:,} equal, 0 only before, 0 only after, 0 changed" in out


def test_a_filter_takes_its_rows_only_and_all_others_get_the_same_answers(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    """Neither random numbers nor answers nor times shift, although frames have other rows now."""
    recorded(LOOK, "--parallelism", "2")
    filtered = LOOK.replace("rows.key_by", "rows.filter(col('id') % 3 != 0).key_by")
    code, out, err = compare(filtered, "--out", "found", "--differences", "2")
    gone = -(-ROWS // 3)
    assert code == 1, err
    assert f"{ROWS - gone:,} equal, {gone:,} only before, 0 only after, 0 changed" in out.splitlines()[0]
    assert "left the record" not in out
    only = differences(tmp_path / "found", "seen", "only-before")
    assert sorted(int(str(row["id"])) for row in only) == list(range(0, ROWS, 3))
    assert len((tmp_path / "found" / "before" / "seen.jsonl").read_text().splitlines()) == ROWS
    assert len((tmp_path / "found" / "after" / "seen.jsonl").read_text().splitlines()) == ROWS - gone


def test_other_values_of_a_key_are_shown_as_changes(recorded: Callable[..., None], compare: Compare) -> None:
    recorded(LOOK)
    doubled = LOOK.replace("ctx.call(prices, row.key)", "ctx.call(prices, row.key) + (row.id == 5)")
    code, out, err = compare(doubled, "--key", "id")
    assert code == 1, err
    assert f"{ROWS - 1:,} equal, 0 only before, 0 only after, 1 changed (by id)" in out
    assert '~ {"id": 5} asked: ' in out


def test_another_column_is_said_and_the_common_ones_are_compared(
    recorded: Callable[..., None], compare: Compare
) -> None:
    recorded(LOOK)
    wider = LOOK.replace("yield Seen(", "yield Wider(").replace("Seen]", "Wider]")
    code, out, err = compare(
        "class Wider(Seen):\n    more: int = 1\n" + wider.replace("ctx.time.now())", "ctx.time.now(), row.id)")
    )
    assert code == 1, err
    assert f"{ROWS:,} equal, 0 only before, 0 only after, 0 changed; columns +more" in out


# ---- questions that were not asked

ASKS_MORE = LOOK.replace("ctx.call(prices, row.key)", "self.price(row, ctx)").replace(
    "    def on_row",
    """    def price(self, row: Row, ctx: Context) -> int:
        try:
            return ctx.call(prices, row.key if row.id != 12 else 1_000)
        except ServiceError:
            return -1

    def on_row""",
)


@pytest.mark.parametrize(("ask", "found"), [("default", "-1"), ("live", "100001")])
def test_a_new_question_is_answered_as_told(
    recorded: Callable[..., None], compare: Compare, ask: str, found: str
) -> None:
    recorded(LOOK)
    code, out, err = compare(ASKS_MORE, "--ask", ask, "--key", "id")
    assert code == 1, err
    assert f"{ROWS - 1:,} equal" in out
    assert f"-> {found}" in out
    assert "left the record 1 times, first where operator 'look' asks for changed.prices(1000) at row {'id': 12," in out


def test_a_new_question_ends_the_comparison_otherwise(recorded: Callable[..., None], compare: Compare) -> None:
    """Although the function catches what a service raises."""
    recorded(LOOK)
    code, _, err = compare(ASKS_MORE)
    assert code == 2
    assert "error: operator 'look' asks for changed.prices(1000) at row {'id': 12," in err
    assert "add --ask live to ask now, or --ask default" in err


def test_one_more_random_number_leaves_the_record_and_shifts_no_other(
    recorded: Callable[..., None], compare: Compare
) -> None:
    recorded(LOOK)
    drawn = LOOK.replace("ctx.random.random()", "ctx.random.random() + (row.id == 9 and ctx.random.random())")
    code, _, err = compare(drawn)
    assert (code, "asks for a random number at row {'id': 9," in err) == (2, True)
    code, out, err = compare(drawn, "--ask", "default")
    assert code == 1, err
    assert f"{ROWS - 1:,} equal" in out


ASYNC = """
async def look(row: Row, ctx: Context) -> Seen:
    return Seen(row.id, row.key, 0.0, await ctx.call(prices, row.key), 0)

job = Job("watched")
rows = job.source(FileSource("rows.jsonl", Row), event_time="at")
rows.map(look).named("look").sink(FileSink("out")).named("seen")
"""


def test_asynchronous_calls_are_answered_from_the_record(recorded: Callable[..., None], compare: Compare) -> None:
    recorded(ASYNC)
    code, out, err = compare(ASYNC)
    assert (code, f"{ROWS:,} equal" in out) == (0, True), err
    code, out, err = compare(ASYNC.replace("rows.map", "rows.filter(col('id') % 2 == 0).map"))
    assert code == 1, err
    assert f"{ROWS // 2:,} equal, {ROWS // 2:,} only before, 0 only after" in out
    asks = ASYNC.replace("prices, row.key)", "prices, row.key if row.id != 12 else 1_000)")
    code, _, err = compare(asks)
    assert (code, "asks for changed.prices(1000) at" in err) == (2, True), err
    code, out, err = compare(asks, "--ask", "live")
    assert (code, f"{ROWS - 1:,} equal" in out) == (1, True), err


def test_a_call_that_the_recorded_function_makes_later_waits_for_its_answer(
    recorded: Callable[..., None], compare: Compare
) -> None:
    """The changed function asks at once what the recorded one asks behind another question."""
    both = ASYNC.replace("await ctx.call(prices, row.key)", "await ctx.call(prices, 50 + row.id, first=True)")
    both = both.replace("    return Seen", "    await ctx.call(prices, row.key)\n    return Seen")
    priced = "def price(key: int, first: bool = False) -> int:"
    head = HEAD.replace("def price(key: int) -> int:", priced)
    recorded(both, head=head)
    code, out, err = compare(both.replace("    await ctx.call(prices, row.key)\n", ""), head=head)
    assert (code, "equal (" in out) == (0, True), (out, err)


PACED = """
from clonos_py.evaluation.nexmark.events import Bid
from clonos_py.evaluation.nexmark.source import EVENT_TIME, NexmarkSource

class Total(Record):
    auction: int
    total: int
    at: int

class Totals(Process[Bid, Total]):
    total: int = state(0)

    def on_row(self, row: Bid, ctx: Context) -> Iterator[Total]:
        self.total += row.price
        yield Total(row.auction, self.total, ctx.time.now())

job = Job("watched")
source = NexmarkSource(events=8_000, rate=20_000, partitions=2)
person, auction, bid = job.source(source, event_time=EVENT_TIME, out_of_order=source.out_of_order)
bid.key_by("auction").process(Totals).named("totals").sink(FileSink("out")).named("seen")
"""
WITH_TIMERS = PACED.replace(
    "    total: int = state(0)\n",
    """    total: int = state(0)
    due: int = state(0)
    soon = processing_timer()

    @soon.fires
    def fired(self, ctx: Context) -> Iterator[Total]:
        yield Total(ctx.key, self.due, -ctx.time.now())
""",
).replace(
    "        self.total += row.price\n",
    """        self.total += row.price
        if not self.due:
            self.due = ctx.time.now() + 50_000
            self.soon.set(self.due)
""",
)


def test_new_timers_fire_when_the_recorded_time_reaches_them(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    recorded(PACED, "--parallelism", "2")
    fired = []
    for folder in ("once", "twice"):
        code, _, err = compare(WITH_TIMERS, "--out", folder)
        assert code == 1, err
        assert differences(tmp_path / folder, "seen", "only-before") == []
        fired.append(differences(tmp_path / folder, "seen", "only-after"))
    assert fired[0]
    assert all(int(str(row["total"])) <= -int(str(row["at"])) for row in fired[0])
    assert fired[0] == fired[1]


def test_timers_that_both_have_fire_at_the_same_events(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    interval = middle(recorded, tmp_path, WITH_TIMERS, "--parallelism", "2", "--kill", "totals[0]@200ms")
    code, out, err = compare(WITH_TIMERS)
    assert (code, "equal (" in out) == (0, True), (out, err)
    code, out, err = compare(WITH_TIMERS, *interval)
    assert (code, "equal (" in out) == (0, True), (out, err)


# ---- other operators and state

SUMS = """
class Sums(Process[Row, Row]):
    total: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:
        self.total += 1
        yield Row(row.id, row.key, self.total)

job = Job("watched")
rows = job.source(FileSource("rows.jsonl", Row), event_time="at")
rows.key_by("key").process(Sums).named("sums").sink(FileSink("out")).named("seen")
"""


def test_operators_may_come_and_go(recorded: Callable[..., None], compare: Compare) -> None:
    """A new keyed operator in front, another sink behind, and the recorded one gets its rows from a new task."""
    recorded(SUMS, "--parallelism", "2")
    more = SUMS.replace("rows.key_by", "rows.key_by('id').process(First).named('first').key_by") + (
        "rows.sink(FileSink('out2')).named('all')\n"
    )
    first = "class First(Process[Row, Row]):\n    def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:\n"
    code, out, err = compare(f"{first}        yield row\n{more}", "--key", "id")
    assert code == 1, err
    assert f"all: 0 rows before, {ROWS:,} after: 0 equal, 0 only before, {ROWS:,} only after" in out
    assert f"seen: {ROWS:,} rows before, {ROWS:,} after" in out
    code, out, err = compare(
        'job = Job("watched")\njob.source(FileSource("rows.jsonl", Row)).sink(FileSink("out")).named("seen")'
    )
    assert code == 1, err
    assert f"seen: {ROWS:,} rows before, {ROWS:,} after" in out


def test_state_that_means_something_else_is_refused_in_the_middle_of_a_job(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    interval = middle(recorded, tmp_path, PACED)
    number = interval[1]
    other = (
        PACED.replace("total: int = state(0)", "total: str = state('')")
        .replace("self.total += row.price", "self.total = str(row.price)")
        .replace("self.total,", "int(self.total),")
    )
    code, _, err = compare(other, *interval)
    assert code == 2
    assert f"error: checkpoint {number} has state of 'totals' under another definition (attribute total: int" in err
    assert "begin at the beginning of the job (--checkpoint 0), or add --drop-state totals to start without it" in err
    assert compare(other, *interval, "--drop-state", "totals")[0] == 1
    code, _, err = compare(other, *interval, "--drop-state", "totls")
    assert (code, "--drop-state totls: neither the recorded nor the changed job has it: there was " in err) == (2, True)
    assert compare(other)[0] == 1
    renamed = PACED.replace('named("totals")', 'named("sums")')
    code, _, err = compare(renamed, *interval)
    assert (code, f"checkpoint {number} has state of 'totals', which the changed job does not have" in err) == (2, True)
    code, out, err = compare(renamed, *interval, "--drop-state", "totals")
    assert (code, "not in the record, so without state from before the interval: sums" in out) == (1, True), err


def test_state_is_taken_over_into_a_job_of_other_operators(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    """Each row of the interval has its total, with all bids before."""
    interval = middle(recorded, tmp_path, PACED, "--parallelism", "2")
    nothing = PACED.replace("bid.key_by", "bid.filter(col('price') >= 0).key_by")
    code, out, err = compare(nothing, *interval)
    assert (code, "equal (" in out) == (0, True), (out, err)


@pytest.mark.parametrize("parallelism", ["1", "2"])
def test_changed_code_goes_on_where_the_job_was_started_again(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path, parallelism: str
) -> None:
    """With its own state, also at another parallelism."""
    (tmp_path / "watched.py").write_text(HEAD + PACED)
    taken: list[int] = []

    def enough() -> bool:
        taken[:] = [manifest.checkpoint for manifest in CheckpointStore(str(tmp_path / "ck"), "watched").manifests()]
        return len(taken) > 2

    settings: dict[str, Any] = {"runtime": "local", "checkpoints": "ck", "checkpoint_interval": "50ms"}
    run_until(enough, tmp_path / "watched.py", record="1h", parallelism="2", **settings)
    recorded(PACED, "--parallelism", parallelism)
    code, out, err = compare(PACED)
    assert (code, "equal (" in out) == (0, True), (out, err)
    doubled = PACED.replace("self.total += row.price", "self.total += 2 * row.price").replace(
        "self.total,", "self.total // 2,"
    )
    code, out, err = compare(doubled)
    assert (code, "equal (" in out) == (0, True), (out, err)


# ---- bad input


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job = Job(", "error: changed.py:"),
        ("", "error: changed.py has no job; define one"),
    ],
)
def test_code_that_cannot_be_compared_is_refused(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path, text: str, said: str
) -> None:
    recorded(LOOK)
    code, out, err = compare(text, "--out", "found")
    assert (code, out) == (2, ""), err
    assert said in err
    assert not (tmp_path / "found").exists()


def test_a_source_that_was_not_recorded_is_refused_by_name(recorded: Callable[..., None], compare: Compare) -> None:
    recorded(LOOK)
    more = "job.source(FileSource('rows.jsonl', Row)).named('others').sink(FileSink('out2'))\n"
    code, _, err = compare(LOOK + more)
    assert code == 2
    assert "error: the changed job reads source 'others', which is not in the record" in err


def test_a_key_that_no_sink_has_is_refused(recorded: Callable[..., None], compare: Compare, tmp_path: Path) -> None:
    recorded(LOOK)
    code, _, err = compare(LOOK, "--key", "id,nothing", "--out", "found")
    assert code == 2
    assert not (tmp_path / "found").exists()
    assert "error: --key id,nothing: no sink has these columns: seen has id, key, drawn, asked, at" in err


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("--diff",), "--with NEW.py and --diff belong together"),
        (("--with", "changed.py"), "--with NEW.py and --diff belong together"),
        (("--drop-state", "totals"), "--drop-state is of --with: add --with NEW.py and --diff"),
    ],
)
def test_code_and_comparison_belong_together(
    recorded: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: tuple[str, ...],
    complaint: str,
) -> None:
    recorded(LOOK)
    with loaded_once(tmp_path / "watched.py"):
        assert invoke(["replay", "watched.py", "--checkpoints", "ck", *given]) == 2
    assert complaint in capsys.readouterr().err


# ---- Nexmark

HOT = """
from clonos_py import Job, col
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.nexmark.streams import Streams

source = NexmarkSource(events=60_000, event_rate=4_000, partitions=2)
job = build("q5", source, BlackholeSink(), lambda s: Streams(s.person, s.auction, s.bid{}))
"""
KEPT = ".filter(col('auction') % 3 != 0)"


def test_a_filter_in_query_5_changes_what_the_oracle_says(
    recorded: Callable[..., None], compare: Compare, tmp_path: Path
) -> None:
    recorded(HOT.format(""), "--parallelism", "2")
    code, _, err = compare(HOT.format(KEPT), "--out", "found")
    assert code == 1, err
    bids = [(row[0], row[1]) for row in rows_of(SOURCE, "bid", "auction", "date_time")]
    before, after = hot_items(bids), hot_items([bid for bid in bids if bid[0] % 3])
    assert before & after
    only = {
        kind: Counter((row["auction"], row["num"]) for row in differences(tmp_path / "found", "sink-blackhole", kind))
        for kind in ("only-before", "only-after")
    }
    assert only == {"only-before": before - after, "only-after": after - before}
    assert before == Counter(expected("q5", SOURCE))


SOURCE = NexmarkSource(events=60_000, event_rate=4_000, partitions=2)


def hot_items(bids: list[tuple[int, int]]) -> Counter[tuple[object, object]]:
    """Auction and number of bids of the auctions with the most bids in each window of 10 s, every 2 s."""
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for auction, at_us in bids:
        last = at_us // 2_000_000 * 2_000_000
        for start in range(last, at_us - 10_000_000, -2_000_000):
            counts[start][auction] += 1
    found: Counter[tuple[object, object]] = Counter()
    for window in counts.values():
        most = max(window.values())
        found.update((auction, number) for auction, number in window.items() if number == most)
    return found
