"""``clonos replay`` repeats what a job did, with nothing from outside."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

import clonos_py
from clonos_py import Job
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from clonos_py.dsl.loading import load_job_file
from clonos_py.dsl.runs import ShownReplay
from clonos_py.runtime.replay.run import RecordedJob, completed_us
from tests.counting_rates import counting_rates
from tests.jobs import in_process

JOB = """
from __future__ import annotations
from collections.abc import Iterator
from pathlib import Path
from clonos_py import Context, Job, OpenContext, Process, Record, processing_timer, state
from clonos_py.connectors import FileSink, FileSource

class Sale(Record):
    id: int
    shop: int

class Priced(Record):
    id: int
    shop: int
    rate: float
    dice: float
    at: int

class Total(Record):
    shop: int
    sales: int
    dice: float
    at: int

class PerShop(Process[Priced, Total]):
    sales: int = state(0)
    dice: float = state(0.0)
    later = processing_timer()

    def open(self, ctx: OpenContext) -> None:
        pass

    def close(self) -> None:
        Path(CLOSED).touch()

    def on_row(self, row: Priced, ctx: Context) -> Iterator[Total]:
        self.sales += 1
        self.dice += row.dice
        self.later.set(ctx.time.now() + 5_000)
        return iter(())

    @later.fires
    def report(self, ctx: Context) -> Iterator[Total]:
        yield Total(ctx.key, self.sales, self.dice + ctx.random.random(), ctx.time.now())

def priced(row: Sale, ctx: Context) -> Priced:
    if row.id == FAILS_AT:
        raise ValueError(f"no price at {ctx.time.now()} for {row.id}")
    rate = float(ctx.http.get(URL).json()["rate"]) if row.id % 20 == 0 else 0.0
    return Priced(row.id, row.shop, rate, ctx.random.random(), ctx.time.now())

def job(folder: str) -> Job:
    job = Job("night", checkpoint_interval="20ms", runtime="local", frame_rows=20, record="1h")
    sales = job.source(FileSource(f"{folder}/in", format="jsonl", schema=Sale))
    rates = sales.rebalance().map(priced).named("priced")
    rates.sink(FileSink(f"{folder}/priced")).named("prices")
    rates.key_by("shop").process(PerShop).named("per_shop").sink(FileSink(f"{folder}/totals")).named("totals")
    return job
"""
ROWS = 400


class Night(NamedTuple):
    """A job that has run, and its folders."""

    script: Path
    folder: Path

    @property
    def checkpoints(self) -> str:
        return str(self.folder / "checkpoints")

    def run(self, *more: str, fails_at: int = -1) -> str:
        """Runs the job, with a server that never answers the same twice. Returns the error of the job that is to fail
        at a row."""
        with counting_rates() as server:
            told = {"URL": f"{server.address}/EUR", "CLOSED": str(self.folder / "closed")}
            text = JOB.replace("FAILS_AT", str(fails_at))
            for name, value in told.items():
                text = text.replace(name, repr(value))
            self.script.write_text(text)
            ended = in_process.run(self.script, "--folder", str(self.folder), "--checkpoints", self.checkpoints, *more)
        assert ended.returncode == (0 if fails_at < 0 else 1), ended.stderr
        return "".join(line for line in ended.stderr.splitlines() if line.startswith("error:"))

    def replay(self, *more: str) -> int:
        with in_process.loaded_once(self.script), _offline():
            named = [str(self.script), "--folder", str(self.folder), "--checkpoints", self.checkpoints]
            return invoke(["replay", *named, *more])

    def job(self) -> Job:
        with in_process.loaded_once(self.script):
            return load_job_file(str(self.script)).job({"folder": str(self.folder)})

    def replayed(self, **chosen: Any) -> ShownReplay:
        with in_process.loaded_once(self.script), _offline():
            return clonos_py.replay(self.script, self.checkpoints, parameters={"folder": str(self.folder)}, **chosen)

    def rows(self, sink: str) -> list[str]:
        """The rows of a sink of the job, sorted."""
        return sorted(json.dumps(row, sort_keys=True) for row in read_results(str(self.folder / sink)))

    def replayed_rows(self, out: Path, sink: str) -> list[str]:
        lines = (out / f"{sink}.jsonl").read_text().splitlines()
        return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    (tmp_path / "in").mkdir()
    _write_sales(tmp_path, 0)
    return Night(tmp_path / "night.py", tmp_path)


def _write_sales(folder: Path, first: int, shops: int = 7) -> None:
    rows = "".join(json.dumps({"id": number, "shop": number % shops}) + "\n" for number in range(first, first + ROWS))
    (folder / "in" / f"sales_{first}.jsonl").write_text(rows)


@contextmanager
def _offline() -> Iterator[None]:
    """Whoever opens a connection fails."""

    def refused(*given: Any) -> NoReturn:
        raise AssertionError("a connection was opened")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refused)
        patch.setattr(socket.socket, "connect_ex", refused)
        yield


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--protocol", "unaligned", "--standby-feed", "5ms"),
        ("--protocol", "uncoordinated"),
        ("--sharing-depth", "0", "--guarantee", "exactly-once"),
        ("--protocol", "communication-induced", "--sharing-depth", "0", "--guarantee", "exactly-once"),
    ],
    ids=" ".join,
)
def test_a_replay_gives_the_rows_of_the_run_whatever_failed(
    night: Night, given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run(*given, "--parallelism", "2", "--kill", "priced[0]@100ms", "--kill", "per_shop[1]@200ms")
    out = tmp_path / "out"
    assert night.replay("--out", str(out)) == 0
    assert "identical: state, progress and output checksums of" in capsys.readouterr().out
    for sink, folder in (("prices", "priced"), ("totals", "totals")):
        assert night.replayed_rows(out, sink) == night.rows(folder)
        assert len(night.rows(folder)) > 0


def test_runs_that_resume_at_another_parallelism_are_replayed_as_one(night: Night, tmp_path: Path) -> None:
    for first, parallelism in ((0, 2), (ROWS, 3), (2 * ROWS, 1)):
        _write_sales(night.folder, first)
        night.run("--parallelism", str(parallelism))
    out = tmp_path / "out"
    assert night.replay("--out", str(out)) == 0
    assert night.replayed_rows(out, "prices") == night.rows("priced")
    assert len(night.rows("priced")) == 3 * ROWS


def test_a_part_of_the_record_is_replayed_from_a_base(night: Night) -> None:
    night.run("--parallelism", "2", "--record", "1s")
    recorded = RecordedJob(night.job(), night.checkpoints)
    bases, last = recorded.store.bases(), recorded.manifests[-1]
    assert len(bases) > 2
    for base in bases[:-1]:
        found = night.replayed(checkpoint=base.checkpoint, until=last.checkpoint)
        assert found.identical, found.report.differences
        assert found.report.first is not None
        assert found.report.first.checkpoint == base.checkpoint
    at = datetime.fromtimestamp(completed_us(bases[1]) / 1e6, UTC)
    assert night.replayed(at=at).report.first == night.replayed(at=at.isoformat()).report.first == bases[1]


def test_one_task_and_what_leads_to_it_is_replayed(night: Night) -> None:
    night.run("--parallelism", "2")
    found = night.replayed(task="prices[1]")
    assert found.identical
    assert found.report.tasks == 3, "itself and both sources"
    assert set(found.rows) == {"prices"}
    assert 0 < found.rows["prices"].num_rows < ROWS


def test_determinants_are_a_table(night: Night) -> None:
    night.run("--parallelism", "2")
    found = night.replayed()
    table = found.determinants
    kinds = set(table.column("kind").to_pylist())
    assert {"SourceRead", "InputOrder", "Time", "Seed", "Answer", "TimerFired"} <= kinds
    answers = [row["what"] for row in table.to_pylist() if row["kind"] == "Answer"]
    assert len(answers) == ROWS / 20
    assert "'status': 200" in answers[0]


def test_code_that_gives_other_rows_is_said_to_differ(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    night.script.write_text(night.script.read_text().replace("self.sales += 1", "self.sales += 2"))
    assert night.replay() == 1
    said = capsys.readouterr()
    assert "state of per_shop" in said.out
    assert re.search(r"different: \d+ of \d+ snapshots", said.out)
    assert "the code is not the one that wrote the record" in said.err


def test_code_that_asks_what_was_never_asked_is_one_line(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    night.script.write_text(night.script.read_text().replace("row.id % 20", "row.id % 10"))
    assert night.replay() == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert re.search("the replay needs an answer of 'http'", line), line


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--until", "999"), r"checkpoint 999 is not in the record, which has \d+ from \d+ to \d+"),
        (("--task", "nobody[0]"), "there is no task 'nobody\\[0\\]': choose from source-file\\[0\\], prices"),
        (("--out", "."), "has files already: name another folder"),
        (
            ("--checkpoints", "nowhere"),
            "nowhere has no record of job 'night': run it with this folder as --checkpoints",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_replayed_is_one_line(
    night: Night,
    given: Sequence[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    night.run()
    capsys.readouterr()
    monkeypatch.chdir(night.folder)
    assert night.replay(*given) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert re.search(problem, line), line


@pytest.mark.parametrize("given", [("--at", "yesterday"), ("--at", "2026-11-27", "--checkpoint", "1")], ids=str)
def test_a_wrong_option_exits_with_2(night: Night, given: Sequence[str]) -> None:
    night.run()
    assert night.replay(*given) == 2


def test_a_job_with_other_operators_is_refused(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    night.script.write_text(night.script.read_text().replace('named("priced")', 'named("rated")'))
    assert night.replay() == 1
    assert "the job has other operators than the record: " in capsys.readouterr().err


def test_a_damaged_record_is_one_line_that_names_the_file(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    file = sorted(Path(night.checkpoints).rglob("*.record"))[0]
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert night.replay() == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert f"{file} is corrupt" in line
    assert line.endswith(
        "restore the file from a copy, or choose another interval: `clonos record ls` shows what is kept"
    )
    file.unlink()
    assert night.replay() == 1
    assert f"{file} is missing" in capsys.readouterr().err


def test_input_that_has_changed_is_one_line(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    _write_sales(night.folder, 0, shops=5)
    assert night.replay() == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert "source-file" in line
    assert "--fresh" not in line


def test_an_interval_that_is_not_kept_is_one_line(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    night.run()
    capsys.readouterr()
    base = CheckpointStore(night.checkpoints, "night").bases()[-1].checkpoint
    for given, problem in (
        (("--at", "2100-01-01"), "nothing is recorded at 2100-01-01 00:00:00 UTC: the record has checkpoints from "),
        (("--checkpoint", str(base), "--until", str(base)), f"begins at checkpoint {base} and ends at {base}: choose"),
    ):
        assert night.replay(*given) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
        assert problem in line
    for mark in Path(night.checkpoints).rglob("*.base"):
        mark.unlink()
    for manifest in sorted(Path(night.checkpoints).rglob("*.manifest"))[:1]:
        manifest.unlink()
    assert night.replay() == 1
    assert "has manifests, but none from which a replay can start: restore the folder" in capsys.readouterr().err


def test_a_damaged_manifest_is_one_line_without_a_remedy_that_fails_too(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run()
    file = sorted(Path(night.checkpoints).rglob("*.manifest"))[0]
    file.write_bytes(file.read_bytes()[:-1])
    for listed in (False, True):
        capsys.readouterr()
        ended = invoke(["record", "ls", "--checkpoints", night.checkpoints]) if listed else night.replay()
        assert ended == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
        assert line.endswith("; restore the file from a copy")
        assert str(file) in line


def test_a_damaged_end_of_a_failed_job_leaves_the_intervals_before(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run(fails_at=ROWS - 7)
    for file in Path(night.checkpoints).rglob("*.tail"):
        file.write_bytes(file.read_bytes()[:-1])
    capsys.readouterr()
    assert night.replay() == 1
    assert "or choose another interval" in capsys.readouterr().err
    newest = CheckpointStore(night.checkpoints, "night").latest()
    assert newest is not None
    assert night.replay("--until", str(newest.checkpoint)) == 0


@pytest.mark.parametrize("protocol", ["aligned", "uncoordinated"])
def test_a_job_that_failed_fails_again_in_its_replay(
    night: Night, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the time and the row of its failure: the record has what the processes held then."""
    failed = night.run("--parallelism", "2", "--protocol", protocol, fails_at=ROWS - 7)
    assert re.search(r"no price at \d+ for 393", failed)
    (night.folder / "closed").unlink(missing_ok=True)
    capsys.readouterr()
    assert night.replay() == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert line == failed.replace(" (the last checkpoint is intact)", "")
    assert not (night.folder / "closed").exists(), "operators are not closed after a failure"


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_job_that_failed_before_its_first_checkpoint_fails_again_in_its_replay(
    night: Night, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record begins when the job does."""
    given = ("--parallelism", "2", "--protocol", protocol, "--checkpoint-interval", "1h")
    failed = night.run(*given, fails_at=ROWS - 7)
    assert re.search(r"no price at \d+ for 393", failed)
    capsys.readouterr()
    assert night.replay() == 1
    said = capsys.readouterr().err.splitlines()
    assert "replaying from the beginning of the job to the failure of the job" in said
    assert [line for line in said if line.startswith("error:")] == [failed]
    assert night.replay("--until", "3") == 1
    assert "checkpoint 3 is not in the record: the job failed before its first" in capsys.readouterr().err
    assert invoke(["record", "ls", "--checkpoints", night.checkpoints]) == 0
    _, first, _, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"the job failed before any checkpoint: \d+ determinants of \d+ tasks are kept until then", first
    )
    assert last.startswith("record = 1h: ")


def test_of_runs_that_failed_before_the_first_checkpoint_the_last_is_replayed(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    night.run("--parallelism", "2", "--checkpoint-interval", "1h", fails_at=ROWS - 7)
    failed = night.run("--parallelism", "1", "--checkpoint-interval", "1h", fails_at=ROWS - 90)
    assert "for 310" in failed
    capsys.readouterr()
    assert night.replay() == 1
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")] == [failed]


@pytest.mark.parametrize(("protocol", "parallelism"), [("aligned", "2"), ("aligned", "1"), ("unaligned", "2")])
def test_a_run_that_resumed_and_failed_fails_again_in_the_replay(
    night: Night, protocol: str, parallelism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before its first checkpoint, maybe at another parallelism: its tasks begin with the state of the run before."""
    night.run("--parallelism", "2", "--protocol", protocol, fails_at=ROWS - 7)
    given = ("--parallelism", parallelism, "--protocol", protocol, "--checkpoint-interval", "1h")
    failed = night.run(*given, fails_at=ROWS - 7)
    capsys.readouterr()
    for begin in ((), ("--checkpoint", "1000000")):
        assert night.replay(*begin) == 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
        assert line == failed.replace(" (the last checkpoint is intact)", "")
