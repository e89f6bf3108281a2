"""``clonos replay --trace`` finds the rows from which a row of a sink came: known here, since the jobs are small."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clonos_py.cli.replay_trace import depths
from clonos_py.cli.trace_svg import picture
from clonos_py.dsl.loading import load_job_file
from clonos_py.runtime.replay.predicates import RowPredicate
from clonos_py.runtime.replay.provenance import RowFound, Tracer, TraceStep
from clonos_py.runtime.replay.run import ReplayRange, replay
from tests.jobs import in_process
from tests.jobs.recorded import JOB, ROWS, recorded, replayed, until

KINDS = """
def kept(row: Txn) -> bool:
    return row.id % 2 == 1

class Late(Process[Txn, Seen]):
    nth: int = state(0)

    def on_row(self, row: Txn, ctx: Context) -> Iterator[Seen]:
        self.nth += 1
        yield Seen(row.id, row.account, self.nth)

class Both(CoProcess[Txn, Txn, Seen]):
    nth: int = state(0)

    def on_left(self, row: Txn, ctx: Context) -> None:
        self.nth += 1

    def on_right(self, row: Txn, ctx: Context) -> Seen:
        return Seen(row.id, row.account, self.nth)

class Joined(Record):
    id: int
    account: int
    amount: int
    other: int

class Total(Record):
    account: int
    total: int

moved = txns.rebalance()
moved.filter(kept).named("kept").sink(MemorySink()).named("odd")
moved.flat_map(halves).named("halves").sink(MemorySink()).named("pairs")
moved.map(slow).named("slow").sink(MemorySink()).named("slowly")
moved.map_batches(whole, Pair).named("whole").sink(MemorySink()).named("batches")
moved.select("id", half=col("amount") / 2).named("projected").sink(MemorySink()).named("halved")
txns.key_by("account").process(Late, in_order=True).named("late").sink(MemorySink()).named("in_order")
sum_so_far = txns.key_by("account").aggregate(Total, total=col("amount").sum()).named("sum").changes()
sum_so_far.sink(MemorySink()).named("running")
left, right = txns.filter(col("id") % 2 == 0).named("even"), txns.filter(col("id") % 2 == 1).named("odd_ones")
pairs = left.select("id", "account", "amount", "at").join(
    right.select("account", "at", other=col("id")), on="account", within=tumbling("10s"), into=Joined
).named("joined")
pairs.sink(MemorySink()).named("joins")
left.key_by("account").connect(right.key_by("account")).process(Both).named("both").sink(MemorySink()).named("two")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job of ``recorded`` with more operators, which has run."""
    made = tmp_path_factory.mktemp("recorded")
    recorded(made, JOB + KINDS)
    return made


def traced(folder: Path, sink: str, condition: str, checkpoint: int | None = None) -> dict[str, TraceStep]:
    """The steps of the way of a row, by operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with in_process.loaded_once(folder / "job.py"):
            job = load_job_file("job.py").job(None)
            tracer = Tracer(job, RowPredicate(condition), sink, rows_max=1_000)
            with pytest.raises(RowFound):
                replay(job, "checkpoints", ReplayRange(checkpoint=checkpoint), lambda *rows: None, watcher=tracer)
    return {step.operator: step for step in tracer.steps()}


def ids(step: TraceStep) -> list[int]:
    return sorted(row["id"] for row in step.rows)


def test_it_leads_through_a_map_and_filters_to_the_source(folder: Path) -> None:
    steps = traced(folder, "seen", "id == 0")
    assert list(steps) == ["seen", "count", "double", "positive", "with_event_time", "txns"]
    for name in ("double", "positive", "txns"):
        assert (ids(steps[name]), steps[name].exact) == ([0], True)
    assert steps["count"].before == ["seen"]
    assert steps["txns"].before == ["with_event_time"]


def test_a_window_came_from_all_rows_of_its_key_and_time(folder: Path) -> None:
    steps = traced(folder, "totals", "account == 1 and window_start == 20_000_000")
    assert ids(steps["double"]) == ids(steps["txns"]) == [22, 29]
    assert steps["sums"].exact
    assert all(row["account"] == 1 for row in steps["sums"].rows)
    assert steps["sums"].frames[0].endswith("of txns[0]") or steps["sums"].frames[0].endswith("of txns[1]")


def test_the_row_for_which_a_process_function_was_called_is_named_and_earlier_ones_of_the_key_may_count(
    folder: Path,
) -> None:
    step = traced(folder, "seen", "id == 31")["count"]
    assert [row["id"] for row in step.called] == [31]
    assert ids(step) == until(31)
    assert not step.exact


def test_a_timer_has_no_row(folder: Path) -> None:
    step = traced(folder, "over", "account == 2")["count"]
    assert (step.called, ids(step)) == ([], until(597))
    assert "a timer" in step.how[0]


def test_rows_in_the_order_of_event_time_have_their_key_only(folder: Path) -> None:
    step = traced(folder, "in_order", "id == 31")["late"]
    assert set(until(31)) <= set(ids(step))
    assert {row["account"] for row in step.rows} == {3}
    assert not step.exact


def test_a_process_of_two_inputs_has_rows_of_both(folder: Path) -> None:
    step = traced(folder, "two", "id == 31")["both"]
    assert [row["id"] for row in step.called] == [31]
    assert {row["account"] for row in step.rows} == {3}
    assert {row["id"] % 2 for row in step.rows} == {0, 1}


@pytest.mark.parametrize(
    ("sink", "operator", "condition"),
    [
        ("odd", "kept", "id == 31"),
        ("pairs", "halves", "id == 31 and nth == 1"),
        ("slowly", "slow", "id == 31"),
        ("halved", "projected", "id == 31"),
    ],
)
def test_a_function_of_one_row_or_a_projection_tells_its_row(
    sink: str, operator: str, condition: str, folder: Path
) -> None:
    """Behind a rebalancing edge, so that the rows of a channel are every other batch."""
    steps = traced(folder, sink, condition)
    assert (ids(steps[operator]), steps[operator].exact) == ([31], True)
    assert ids(steps["txns"]) == [31]
    assert not any(step.notes for step in steps.values())


def test_a_function_of_batches_tells_its_batch_only(folder: Path) -> None:
    step = traced(folder, "batches", "id == 31")["whole"]
    assert 31 in ids(step)
    assert step.exact == (step.count == 1)
    assert "of the batch that its function got" in step.how[0]


def test_a_running_aggregate_came_from_all_rows_of_the_key_so_far(folder: Path) -> None:
    step = traced(folder, "running", f"account == 1 and total == {sum(until(596))}")["txns"]
    assert ids(step) == until(596)


def test_a_join_came_from_the_rows_of_both_sides_with_its_values(folder: Path) -> None:
    steps = traced(folder, "joins", "id == 30 and other == 37")
    joined = steps["joined"]
    assert joined.exact
    assert [row["id"] for row in joined.rows if "id" in row] == [30]
    assert [row["other"] for row in joined.rows if "other" in row] == [37]
    assert ids(steps["even"]) == [30]
    assert ids(steps["odd_ones"]) == [37]
    assert ids(steps["txns"]) == [30, 37]
    assert set(steps["with_event_time"].before) == {"even", "odd_ones"}


PLAIN = (
    JOB.split("seen, over = ")[0]
    + """
class Nth(Process[Doubled, Seen]):
    seen: int = state(0)

    def on_row(self, row: Doubled, ctx: Context) -> Seen:
        self.seen += 1
        return Seen(row.id, row.account, self.seen)

doubled.key_by("account").process(Nth).named("count").sink(BlackholeSink()).named("seen")
"""
)


def test_what_was_before_the_interval_is_said_to_be_missing(tmp_path: Path) -> None:
    """The job is run again when its input has more rows: the state comes from the checkpoint."""
    recorded(tmp_path, PLAIN, ROWS // 2)
    recorded(tmp_path, PLAIN, ROWS)
    before = "rows from before the interval, which are in the state that it began with, are not shown"
    earlier = traced(tmp_path, "seen", f"id == {ROWS // 2 - 2}")["count"]
    assert earlier.notes == []
    later = traced(tmp_path, "seen", f"id == {ROWS - 2}")["count"]
    assert later.notes == [before]
    assert ids(later) == until(ROWS - 2, ROWS // 2)


def test_the_command_prints_the_way_as_indented_text(folder: Path) -> None:
    done = replayed(folder, "--trace", "id == 0", "--sink", "seen")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("seen (sink, job.py:")
    assert lines[1] == "    exact: the row itself"
    assert lines[2] == '    {"id":0,"account":0,"nth":1}'
    assert lines[3].startswith("  count (process, job.py:")
    assert any(line.startswith("    double (map, ") for line in lines)
    assert lines[-1].startswith("exact: ")


def test_the_picture_has_a_box_for_each_operator_in_light_and_dark(folder: Path, tmp_path: Path) -> None:
    done = replayed(folder, "--trace", "id == 30 and other == 37", "--sink", "joins", "--svg", str(tmp_path / "w.svg"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "w.svg").read_text()
    tree = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    titles = [found.text for found in tree.iter(f"{space}text") if found.get("class") == "title"]
    steps = traced(folder, "joins", "id == 30 and other == 37")
    assert sorted(title.split(":")[0] for title in titles if title) == sorted(steps)
    arrows = [path for path in tree.iter(f"{space}path") if path.get("marker-end")]
    assert len(arrows) >= len(titles) - 1
    assert "prefers-color-scheme: dark" in text


def test_a_line_that_passes_operators_is_below_their_boxes() -> None:
    """The source also leads to the join directly, past the operator between them."""
    steps = [TraceStep(name, "map", "", before, 1, [{"id": 1}], ["the row itself"], True, []) for name, before in PAST]
    tree = ET.fromstring(picture("past", steps, depths(steps)))
    space = "{http://www.w3.org/2000/svg}"
    bottom = max(float(box.get("y") or 0) + float(box.get("height") or 0) for box in tree.iter(f"{space}rect"))
    lines = [path.get("d") or "" for path in tree.iter(f"{space}path") if path.get("marker-end")]
    runs = [float(line.split("V")[1].split("H")[0]) for line in lines if "V" in line]
    assert len(lines) == 4
    assert len(runs) == 1
    assert bottom < runs[0] < float(tree.get("height") or 0)


PAST = [("sink", []), ("join", ["sink"]), ("between", ["join"]), ("source", ["between", "join"])]
"""By operator, from the sink: the next ones on the way to it."""


MISTAKES = [
    (["--trace", "id =="], 2, "no Python expression"),
    (
        ["--trace", "nosuch == 3", "--sink", "seen"],
        1,
        "the rows of seen have no column 'nosuch': seen has id, account, nth",
    ),
    (["--trace", "id == 3"], 1, "name the sink whose row it is by --sink: "),
    (["--trace", "id == 3", "--sink", "sene"], 1, "there is no sink 'sene': choose from "),
    (["--trace", "id == -3", "--sink", "seen"], 1, "id == -3 holds for no row that a sink got in this interval"),
    (["--sink", "seen"], 2, "add --trace CONDITION"),
    (["--trace", "id == 3", "--debug"], 2, "omit one"),
]


@pytest.mark.parametrize(("options", "code", "message"), MISTAKES)
def test_a_mistake_is_one_line(options: list[str], code: int, message: str, folder: Path) -> None:
    done = replayed(folder, *options)
    assert done.returncode == code
    assert message in done.stderr.splitlines()[-1]
