"""A job that resumes with operators of other definitions: state fits, is taken over, or is refused before a run starts.
What is taken over gives the results of the new definition over the whole input."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from tests.jobs.half_way import RECORDS, SCRIPT, go_on, put_back, stopped_half_way
from tests.jobs.in_process import Ended
from tests.observed import without_warnings

FILES, ROWS, KEYS = 1, 400, 5

JOB = (
    RECORDS
    + """
class Event(Record):
    id: int
    key: int
    half: Annotated[int, pa.int32()]
    at: Instant
    spare: int | None

class Counted(Record):
    key: int
    n: int
    most: int | None
    kinds: int
    window_start: Instant

class Sum(Record):
    key: int
    total: int
    n: int

class Sides(Record):
    id: int
    key: int
    other: int

class Name(Record):
    key: int
    name: str

class Last(Record):
    id: int

class Seen(Process[Event, Total]):
    total: int = state(0)
    last: Last | None = state(None)
    until = event_timer()
    def on_row(self, row: Event, ctx: Context) -> Total:
        self.total += 1
        self.last = Last(row.id)
        self.until.set(row.at + 1_000_000_000)
        return Total(row.id, int(self.total))
    @until.fires
    def forget(self, ctx: Context) -> None:
        self.last = None

def event(row: Row) -> Event:
    take_time()
    return Event(row.id, row.key, row.key // 2, row.id * 1_000_000, row.id)

SIDE = "names.jsonl"
job = Job("changed", checkpoint_interval="20ms", runtime="local")
rows = job.source(FileSource("in", format="jsonl", schema=Row)).named("rows").map(event)
events = rows.with_event_time("at", delay="1h").named("timed")
others = events.select(id=col("id"), other=col("key"), at=col("at"))
events.key_by("key").window(tumbling("7s"), lateness="5s").aggregate(
    Counted, n=count(), most=col("id").max(), kinds=col("id").count_distinct()
).named("windows").sink(FileSink("out/windows")).named("windows-out")
events.key_by("half").window(tumbling("7s")).top(2, by=col("id").desc()).named("first").sink(
    FileSink("out/first")
).named("first-out")
events.key_by("half").aggregate(
    n=count(), total=(col("id") * 2).sum()
).named("sums").at_end().sink(FileSink("out/sums")).named("sums-out")
events.key_by("key").window(counted(7)).aggregate(n=count(), ids=col("id").collect()).named("sevens").sink(
    FileSink("out/sevens")
).named("sevens-out")
events.key_by("key").window(counted(6, every=3)).top(2, by=col("id").desc()).named("firsts").sink(
    FileSink("out/firsts")
).named("firsts-out")
events.key_by("key").top(2, by=col("id").desc()).named("best").at_end().sink(FileSink("out/best")).named("best-out")
events.distinct("half").named("distinct").sink(FileSink("out/distinct")).named("distinct-out")
events.join(others, on="id", within=between("-3s", "3s"), into=Sides).named("pairs").sink(
    FileSink("out/pairs")
).named("pairs-out")
events.join(others, on="id", within=tumbling("3s"), into=Sides).named("together").sink(
    FileSink("out/together")
).named("together-out")
events.key_by("key").process(Seen).named("seen").sink(FileSink("out/seen")).named("seen-out")
events.key_by("key").top(2, by=col("id").asc()).named("least").at_end().select("id").sink(
    FileSink("out/least")
).named("least-out")
events.enrich(FileSource(SIDE, Name), on="key").named("named").sink(FileSink("out/named")).named("named-out")
"""
).replace("import itertools", "import itertools\nfrom typing import Annotated\nimport pyarrow as pa", 1)

Change = tuple[str, str]


def write_sides() -> None:
    Path("names.jsonl").write_text("".join(f'{{"key": {key}, "name": "{key}"}}\n' for key in range(KEYS)))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was stopped half-way."""
    folder = tmp_path_factory.mktemp("stopped")
    with chdir(folder):
        write_sides()
    return stopped_half_way(folder, JOB, FILES, ROWS, KEYS, lambda: len(list(Path("out/seen").glob("*.jsonl"))) >= 2)


@pytest.fixture
def changed(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Resumes from there with a change to the text of the job."""
    monkeypatch.chdir(stopped)
    put_back()

    def run(*changes: Change, more: tuple[str, ...] = ()) -> Ended:
        text = JOB
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        Path(SCRIPT).write_text(text)
        return go_on(*more)

    return run


def results() -> dict[str, list[str]]:
    """By sink: its rows without nulls. Rows that were visible before a field was added do not have it."""
    return {sink.name: sorted(map(_text, read_results(str(sink)))) for sink in Path("out").iterdir()}


def _text(row: dict[str, object]) -> str:
    return str({name: value for name, value in row.items() if value is not None})


WINDOW, TOP = 'window(tumbling("7s"), lateness="5s")', 'top(2, by=col("id").desc()).named("best")'
TAKEN_OVER: dict[str, list[Change]] = {
    "nothing": [],
    "another class of a process": [("Seen", "Watched")],
    "a path that is written in another way": [("out/seen", "./out//seen"), ("names.jsonl", "./names.jsonl")],
    "an aggregate removed": [("n=count(), most=col", "most=col"), ("    n: int\n    most", "    most")],
    "an aggregate of a table removed": [("n=count(), total=", "total=")],
    "a shorter lateness": [('lateness="5s"', 'lateness="3s"')],
    "a field that may be null": [("half: Annotated[int, pa.int32()]", "half: Annotated[int, pa.int32()] | None")],
    "a wider number": [("half: Annotated[int, pa.int32()]", "half: int")],
    "an attribute that is a wider number": [("total: int = state(0)", "total: float = state(0.0)")],
    "a nullable field": [
        ("    half: ", "    more: int | None\n    half: "),
        ("row.key, row.key // 2", "row.key, None, row.key // 2"),
    ],
    "a nullable field of an attribute": [
        ("    id: int\n\nclass Seen", "    id: int\n    more: int | None = None\n\nclass Seen")
    ],
    "an attribute added": [("    until = event", "    more: int = state(0)\n    until = event")],
}
REFUSED: dict[str, tuple[str, str, list[Change]]] = {
    "size of a window": ("windows", "window: tumbling 7s, now tumbling 8s", [(WINDOW, WINDOW.replace("7s", "8s"))]),
    "kind of a window": (
        "windows",
        "window: tumbling 7s, now session 7s",
        [(WINDOW, WINDOW.replace("tumbling", "session"))],
    ),
    "processing time": (
        "windows",
        "window: tumbling 7s, now tumbling 7s of processing time",
        [(WINDOW, 'window(tumbling("7s", processing_time=True))')],
    ),
    "size of a count window": ("sevens", "window: 7 rows every 7, now 8 rows every 8", [("counted(7)", "counted(8)")]),
    "slide of a count window": ("firsts", "window: 6 rows every 3, now 6 rows every 2", [("every=3", "every=2")]),
    "a longer lateness": ("windows", "lateness: 5s, now 9s", [('lateness="5s"', 'lateness="9s"')]),
    "keys": (
        "windows",
        "keys: key, now none",
        [(f'key_by("key").{WINDOW}', WINDOW), ("    key: int\n    n: int\n    most", "    n: int\n    most")],
    ),
    "the expression of a key": (
        "sums",
        "keys: half, now half = (id % 2).cast(int32)",
        [('key_by("half").aggregate(', 'key_by(half=(col("id") % 2).cast(pa.int32())).aggregate(')],
    ),
    "another aggregate": (
        "windows",
        "aggregate most: max(id) as int64, now min(id) as int64",
        [('col("id").max()', 'col("id").min()')],
    ),
    "an aggregate added": (
        "windows",
        "aggregate least: none, now min(id) as int64",
        [
            ("n=count(), most=", 'n=count(), least=col("id").min(), most='),
            ("    most: int", "    least: int | None\n    most: int"),
        ],
    ),
    "a count of distinct values removed": (
        "windows",
        "distinct counts: kinds of int64 by key: int64",
        [(', kinds=col("id").count_distinct()', ""), ("    kinds: int\n", "")],
    ),
    "an aggregated expression": (
        "sums",
        "aggregate total: sum((id * 2)) as int64, now sum((id * 3)) as int64",
        [('col("id") * 2', 'col("id") * 3')],
    ),
    "how a table is emitted": (
        "sums",
        "emits: at_end, now changes",
        [('at_end().sink(FileSink("out/sums"))', 'changes().sink(FileSink("out/sums"))')],
    ),
    "n of a top": ("best", "rows per key: 2, now 3", [(TOP, TOP.replace("2", "3"))]),
    "order of a top": ("best", "order: id descending, now id ascending", [(TOP, TOP.replace("desc", "asc"))]),
    "window of a top": (
        "first",
        "window: tumbling 7s, now 14s every 7s",
        [('window(tumbling("7s")).top', 'window(hopping("14s", "7s")).top')],
    ),
    "type of a key": (
        "first",
        "column half: int32, now string",
        [("half: Annotated[int, pa.int32()]", "half: str"), ("row.key // 2", "str(row.key // 2)")],
    ),
    "type of counted values": (
        "windows",
        "distinct counts: kinds of int64 by key: int64",
        [('kinds=col("id")', 'kinds=col("id").cast(str)')],
    ),
    "columns of distinct": ("distinct", "keys: half, now half, id", [('distinct("half")', 'distinct("half", "id")')]),
    "ttl of distinct": ("distinct", "ttl: none, now 9s", [('distinct("half")', 'distinct("half", ttl="9s")')]),
    "bounds of a join": (
        "pairs",
        "within: -3s to 3s, now -4s to 4s",
        [('within=between("-3s", "3s")', 'within=between("-4s", "4s")')],
    ),
    "window of a join": (
        "together",
        "window: tumbling 3s, now tumbling 4s",
        [('within=tumbling("3s")', 'within=tumbling("4s")')],
    ),
    "keys of a join": (
        "pairs",
        "left keys: id, now id, key",
        [('on="id", within=between', 'on=["id", ("key", "other")], within=between')],
    ),
    "key of a process": (
        "seen",
        "keys: key: int64, now half: int64",
        [('key_by("key").process', 'key_by("half").process')],
    ),
    "order of a process": (
        "seen",
        "in order of event time: none, now yes",
        [("process(Seen)", "process(Seen, in_order=True)")],
    ),
    "an attribute": (
        "seen",
        "attribute total: int, now str",
        [("total: int = state(0)", 'total: str = state("0")'), ("self.total += 1", "pass")],
    ),
    "a field of an attribute": (
        "seen",
        "attribute last.more: not stored, now int",
        [
            ("    id: int\n\nclass Seen", "    id: int\n    more: int\n\nclass Seen"),
            ("Last(row.id)", "Last(row.id, 1)"),
        ],
    ),
    "time of a timer": (
        "seen",
        "timer until: event time, now processing time",
        [("event_timer()", "processing_timer()")],
    ),
    "ttl of an attribute": (
        "seen",
        "ttl of total: none, now 9s",
        [("total: int = state(0)", 'total: int = state(0, ttl="9s")')],
    ),
    "a column that nothing had read": (
        "least",
        "column spare: not stored, now int64 or null",
        [('.select("id").sink', '.select("id", "spare").sink')],
    ),
    "a filter behind a table": (
        "sums",
        "only rows with: none, now (half == 1)",
        [('.at_end().sink(FileSink("out/sums"))', '.at_end().filter(col("half") == 1).sink(FileSink("out/sums"))')],
    ),
    "a filter behind a join": (
        "pairs",
        "only rows with: none, now (other == 1) on the right",
        [
            (
                'into=Sides).named("pairs")',
                'into=Sides).named("pairs").filter(col("other") == 1)',
            )
        ],
    ),
}


TOGETHER = [
    ["another class of a process", "an aggregate removed", "an aggregate of a table removed", "a wider number"],
    ["a path that is written in another way", "a shorter lateness", "a nullable field", "an attribute added"],
    ["a field that may be null", "an attribute that is a wider number", "a nullable field of an attribute"],
]
"""Changes that do not touch the same operator. No group has two that would hide each other: any one that is refused
ends the run, and every result is compared."""


@pytest.mark.parametrize(
    "changes",
    [*TOGETHER, *(pytest.param([change], marks=pytest.mark.thorough) for change in TAKEN_OVER)],
    ids=" and ".join,
)
def test_state_is_taken_over(changed: Callable[..., Ended], changes: list[str]) -> None:
    texts = [text for change in changes for text in TAKEN_OVER[change]]
    done = changed(*texts)
    assert done.returncode == 0, done.stderr
    resumed = results()
    shutil.rmtree("out")
    shutil.rmtree("checkpoints")
    assert changed(*texts).returncode == 0
    assert resumed == results()


def test_each_change_is_tried_with_others() -> None:
    assert {change for changes in TOGETHER for change in changes} | {"nothing"} == set(TAKEN_OVER)


@pytest.mark.parametrize("change", REFUSED)
def test_state_of_another_definition_is_refused(changed: Callable[..., Ended], change: str) -> None:
    operator, difference, changes = REFUSED[change]
    done = changed(*changes)
    assert done.returncode == 1
    (line,) = without_warnings(done.stderr)
    assert line.startswith("error: checkpoint ")
    assert f"holds state of {operator!r} under another definition ({difference}" in line
    assert "put that back" in line
    assert line.endswith(", or start over with --fresh")
    assert f"--drop-state {operator} " in line


def test_a_changed_side_input_and_a_changed_output_folder_are_named(changed: Callable[..., Ended]) -> None:
    for name, rows in (("names.jsonl", KEYS - 1), ("others.jsonl", KEYS)):
        Path(name).write_text("".join(f'{{"key": {key}, "name": "another {key}"}}\n' for key in range(rows)))
    fewer, others = (changed(("names.jsonl", name)) for name in ("names.jsonl", "others.jsonl"))
    assert (
        f"'named': the side input has changed since the checkpoint, it had {KEYS} rows and has {KEYS - 1}"
        in fewer.stderr
    )
    assert f"it has other values in its {KEYS} rows: put back what was there" in others.stderr
    write_sides()
    moved = changed(("out/seen", "out/elsewhere"))
    assert f"the checkpoint belongs to the output folder {Path('out/seen').resolve()}: " in moved.stderr
    shutil.copytree("out/seen", "out/elsewhere", dirs_exist_ok=True)
    assert changed(("out/seen", "out/elsewhere")).returncode == 0


def test_with_drop_state_an_operator_goes_on_under_another_definition(changed: Callable[..., Ended]) -> None:
    done = changed((WINDOW, WINDOW.replace("7s", "8s")), more=("--drop-state", "windows"))
    assert done.returncode == 0, done.stderr
    assert len(read_results("out/seen")) == ROWS
