"""Scripts and notebooks run, watch, stop and preview jobs without a command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Context, GraphError, Job, Process, Record, SettingError, UserCodeError, col, count
from clonos_py.bench.witnesses import Number, PacedNumbers
from clonos_py.connectors import FileSink, MemorySink, MemorySource, UpsertMemorySink
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import Source
from clonos_py.model.record_codec import encode
from clonos_py.plan.logical import ReadSource
from clonos_py.runtime.from_python import JobThread
from clonos_py.runtime.preview import _PreviewJob
from clonos_py.runtime.run_control import local_runs
from tests.waiting import SOON_S, wait_until

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


class Word(Record):
    word: str
    length: int


class Even(Record):
    number: int


class Odd(Record):
    number: int


WORDS = [Word(word, len(word)) for word in ("a", "stream", "of", "words")]


def words(sink: Any, *, failing: bool = False) -> Job:
    def checked(row: Word) -> Word:
        if failing and row.word == "of":
            raise ValueError("no such word")
        return row

    job = Job("words")
    job.source(MemorySource(WORDS)).map(checked).filter(col("length") > 1).sink(sink).named("out")
    return job


def endless(folder: Path, checkpoint_interval: str = "100ms") -> Job:
    """An endless job of a thousand numbers a second."""
    job = Job("endless", checkpoint_interval=checkpoint_interval)
    job.source(PacedNumbers(10**9, 500)).named("numbers").sink(FileSink(str(folder), format="jsonl")).named("out")
    return job


# ---- run


def test_a_job_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    sink = MemorySink()
    words(sink).run(runtime="local")
    assert sink.rows(Word) == WORDS[1:]
    assert "words" in capsys.readouterr().err, "the summary of clonos run"


def into(sink: MemorySink, rows: list[Word]) -> Job:
    job = Job("collected")
    job.source(MemorySource(rows, schema=Word)).named("words").sink(sink).named("out")
    return job


@pytest.mark.parametrize("sink", [MemorySink(), UpsertMemorySink("word")], ids=["rows", "upserts"])
def test_a_run_that_does_not_resume_begins_without_the_rows_of_an_earlier_one(sink: MemorySink) -> None:
    """Also where it has fewer tasks, fewer checkpoints, or no rows."""
    into(sink, WORDS * 100).run(runtime="local", parallelism=3)
    into(sink, WORDS[:1]).run(runtime="local")
    assert sink.rows(Word) == WORDS[:1]
    into(sink, WORDS[1:2]).run(runtime="local", checkpoints="checkpoints")
    assert sink.rows(Word) == WORDS[1:2]
    into(sink, []).run(runtime="local")
    assert sink.rows(Word) == []


def test_a_run_that_resumes_adds_to_the_rows_of_the_earlier_one() -> None:
    sink = MemorySink()
    into(sink, WORDS[:2]).run(runtime="local", checkpoints="checkpoints")
    into(sink, WORDS).run(runtime="local", checkpoints="checkpoints")
    assert sink.rows(Word) == WORDS


def test_a_run_cannot_resume_into_another_memory_sink() -> None:
    into(MemorySink(), WORDS).run(runtime="local", checkpoints="checkpoints")
    sink = MemorySink()
    with pytest.raises(SinkError, match=r"in another process or another MemorySink: begin with fresh=True"):
        into(sink, WORDS).run(runtime="local", checkpoints="checkpoints")
    into(sink, WORDS).run(runtime="local", checkpoints="checkpoints", fresh=True)
    assert sink.rows(Word) == WORDS


def test_operators_of_other_names_share_a_sink() -> None:
    sink, job = MemorySink(), Job("shared")
    for number, word in enumerate(WORDS):
        job.source(MemorySource([word])).named(f"source-{number}").sink(sink).named(f"out-{number}")
    job.run(runtime="local")
    assert sorted(row.word for row in sink.rows(Word)) == sorted(row.word for row in WORDS)


@pytest.mark.parametrize("sink", [MemorySink(), UpsertMemorySink("word")], ids=["rows", "upserts"])
def test_rows_that_would_stay_in_another_process_are_refused(sink: MemorySink) -> None:
    """Before Ray starts."""
    with pytest.raises(
        GraphError, match=r"test_from_python.py:\d+: out: (Upsert)?MemorySink keeps its rows in .*'local'"
    ):
        into(sink, WORDS).run(runtime="ray")


def test_settings_override_the_environment_and_a_wrong_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLONOS_RUNTIME", "nowhere")
    with pytest.raises(SettingError, match="CLONOS_RUNTIME"):
        words(MemorySink()).run()
    monkeypatch.setenv("CLONOS_RUNTIME", "sim")
    result = words(MemorySink()).run(runtime="local", parallelism=2)
    assert max(vertex.parallelism for vertex in result.plan.vertices) == 2
    with pytest.raises(SettingError, match=r"^argument: unknown setting paralelism: did you mean parallelism"):
        words(MemorySink()).run(paralelism=2)


def test_an_error_in_a_function_is_raised_with_the_record() -> None:
    with pytest.raises(UserCodeError, match="no such word"):
        words(MemorySink(), failing=True).run(runtime="local")


# ---- start


def test_a_run_is_watched_stopped_and_resumed(tmp_path: Path) -> None:
    out, settings = tmp_path / "out", {"runtime": "local", "checkpoints": str(tmp_path / "checkpoints")}
    handle = endless(out).start(**settings)
    wait_until(lambda: handle.counters.get("numbers.rows_in", 0) > 50)
    assert handle.running
    assert repr(handle) == "<JobHandle 'endless': running>"
    assert not handle.wait(0.01)
    wait_until(lambda: any(out.glob("*.jsonl")))
    handle.stop()
    assert not handle.running
    assert handle.result is None
    assert repr(handle) == "<JobHandle 'endless': ended>"
    seen = numbers(out)
    again = endless(out).start(**settings)
    wait_until(lambda: len(numbers(out)) > len(seen) + 20)
    again.stop()
    found = numbers(out)
    assert len(found) == len(set(found)), "each number once, over both runs"
    assert set(seen) < set(found)


def numbers(folder: Path) -> list[str]:
    return [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


def test_a_stop_commits_all_rows_that_a_sink_has_received(tmp_path: Path) -> None:
    """No checkpoint is taken before: the interval is an hour."""
    out, settings = tmp_path / "out", {"runtime": "local", "checkpoints": str(tmp_path / "checkpoints")}
    handle = endless(out, checkpoint_interval="1h").start(**settings)
    wait_until(lambda: handle.counters.get("out.rows_out", 0) > 50)
    received = handle.counters["out.rows_out"]
    assert not list(out.glob("*.jsonl"))
    assert handle.stop()
    first = numbers(out)
    assert len(first) >= received
    again = endless(out, checkpoint_interval="1h").start(**settings)
    wait_until(lambda: again.counters.get("out.rows_out", 0) > len(first) + 50)
    assert again.stop()
    both = numbers(out)
    assert len(both) == len(set(both)) > len(first) + 50
    assert set(first) < set(both)


def test_a_run_can_be_stopped_before_it_runs(tmp_path: Path) -> None:
    handle = endless(tmp_path / "out").start(runtime="local", checkpoints=str(tmp_path / "checkpoints"))
    assert handle.stop()
    assert handle.result is None


def test_a_stop_does_not_wait_longer_than_its_timeout(tmp_path: Path) -> None:
    asleep = tmp_path / "asleep"

    def sleeps(row: Word) -> Word:
        asleep.touch()
        time.sleep(1)
        return row

    job = Job("slow")
    job.source(MemorySource(WORDS)).map(sleeps).sink(MemorySink()).named("out")
    handle = job.start(runtime="local")
    wait_until(asleep.exists)
    assert handle.stop(timeout_s=0.1) is False
    assert not handle.running
    assert handle.result is None


@pytest.mark.parametrize("timeout_s", ["60s", float("inf"), float("nan")])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused_and_the_run_goes_on(
    timeout_s: Any, tmp_path: Path
) -> None:
    handle = endless(tmp_path / "out").start(runtime="local")
    for method in (handle.wait, handle.stop):
        with pytest.raises(SettingError, match=rf"^timeout_s is {timeout_s!r}: give a number of seconds"):
            method(timeout_s)
    assert handle.running
    handle.stop()


def test_a_run_that_has_ended_has_a_result_and_may_be_stopped() -> None:
    sink = MemorySink()
    handle = words(sink).start(runtime="local")
    assert handle.wait(SOON_S)
    assert handle.result is not None
    assert sum(count for name, count in handle.counters.items() if name.endswith(".rows_in")) >= len(WORDS)
    handle.stop()
    assert sink.rows(Word) == WORDS[1:]


def test_the_error_that_ended_a_run_is_raised_by_wait_and_stop() -> None:
    handle = words(MemorySink(), failing=True).start(runtime="local")
    wait_until(lambda: not handle.running)
    assert repr(handle) == "<JobHandle 'words': failed>"
    for ask in (handle.wait, handle.stop):
        with pytest.raises(UserCodeError, match="no such word"):
            ask()
    with pytest.raises(SettingError, match="did you mean parallelism"):
        words(MemorySink()).start(paralelism=2)


def test_an_exit_in_the_thread_of_a_run_is_raised_by_wait() -> None:
    def carry_out(listener: Any, stop: Any) -> Any:
        raise SystemExit(3)

    handle = JobThread("exits", carry_out)
    with pytest.raises(SystemExit):
        handle.wait(SOON_S)


# ---- preview


def test_a_preview_shows_the_first_rows_of_an_endless_source(tmp_path: Path) -> None:
    job = endless(tmp_path / "out")
    stream = job.source(PacedNumbers(10**9, 500)).named("more").filter(col("id") >= 0)
    shown = job.preview(stream, rows=5)
    assert shown.num_rows == 5
    assert shown.schema == Number.schema()
    assert not (tmp_path / "out").exists(), "no sink is written"
    assert [path.name for path in Path.cwd().iterdir()] == [], "and no checkpoint kept"


def test_a_short_stream_is_previewed_as_a_whole_before_there_is_a_sink() -> None:
    job = Job("exploring")
    rows = job.source(MemorySource(WORDS))
    lengths = rows.key_by("length").aggregate(words=count())
    assert job.preview(rows).to_pylist() == [{"word": row.word, "length": row.length} for row in WORDS]
    assert job.preview(lengths.at_end()).num_rows == len({row.length for row in WORDS})


def test_operators_and_sinks_can_be_previewed_by_name() -> None:
    sink = MemorySink()
    job = words(sink)
    assert job.preview("source-memory", rows=2).num_rows == 2
    assert job.preview("out")["word"].to_pylist() == [row.word for row in WORDS[1:]]
    assert sink.rows(Word) == []
    with pytest.raises(GraphError, match="job 'words' has no operator 'in'"):
        job.preview("in")


def test_a_preview_ends_at_its_timeout() -> None:
    job = Job("slow")
    stream = job.source(PacedNumbers(10**9, 1))
    began = time.monotonic()
    shown = job.preview(stream, rows=1_000, timeout="500ms")
    assert shown.num_rows < 1_000
    assert time.monotonic() - began < SOON_S


class Parity(Process[Word, Even | Odd]):
    def on_row(self, row: Word, ctx: Context) -> Iterator[Even | Odd]:
        yield Even(row.length) if row.length % 2 == 0 else Odd(row.length)


def test_one_result_of_a_process_can_be_previewed() -> None:
    job = Job("parities")
    even, odd = job.source(MemorySource(WORDS)).key_by("word").process(Parity).split(Even, Odd)
    odd.sink(MemorySink("odd-words")).named("odd")
    assert {row["number"] for row in job.preview(even).to_pylist()} == {2, 6}
    assert MemorySink("odd-words").rows(Odd) == []


class Reporting(SourceDefinition):
    """A source that commits its offsets to another system."""

    commits = True

    def __init__(self) -> None:
        self.schemas = (Word.schema(),)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return MemorySource(encode(WORDS, Word.schema())).create(columns, read_rows)


def test_a_preview_commits_no_offsets() -> None:
    job, definition = Job("reporting"), Reporting()
    stream = job.source(definition)
    sink = MemorySink()
    graph = _PreviewJob(stream._output, sink, None).graph()  # type: ignore[arg-type]
    (source,) = [node.work.definition for node in graph.nodes if isinstance(node.work, ReadSource)]
    assert not source.commits
    assert definition.commits
    assert job.preview(stream).num_rows == len(WORDS)


def test_a_preview_is_no_run_of_its_job() -> None:
    """``clonos stop JOB`` finds the run of the job beside a preview."""
    names = set[str]()

    def noted(row: Word) -> Word:
        names.update(run.job for run in local_runs())
        return row

    job = Job("beside-a-preview")
    job.preview(job.source(MemorySource(WORDS)).map(noted))
    assert names
    assert "beside-a-preview" not in names


def test_impossible_previews_are_refused() -> None:
    job = words(MemorySink())
    table = job.source(MemorySource(WORDS)).named("more").key_by("length").aggregate(words=count())
    with pytest.raises(GraphError, match=r"give \.changes\(\) or \.at_end\(\)"):
        job.preview(table)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="belongs to job 'words', not to 'other'"):
        Job("other").preview(table.changes())
    with pytest.raises(GraphError, match="at least 1"):
        job.preview(table.changes(), rows=0)
    with pytest.raises(GraphError, match="rows is '20': it must be a number of rows"):
        job.preview(table.changes(), rows="20")  # type: ignore[arg-type]
