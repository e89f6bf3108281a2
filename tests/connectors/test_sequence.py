"""A source that goes on with another one: each row once, in each task, also in a replay and after a resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos_py import Instant, Job, Record, count, testing, tumbling
from clonos_py.connectors import FileSource, MemorySink, MemorySource, SequenceSource, SocketSource
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Discovered, End, Read, Source, Wait
from clonos_py.testing import check_source


class Row(Record):
    id: int
    at: Instant


PAST = [Row(number, number * 1_000_000) for number in range(40)]
NOW = [Row(number, number * 1_000_000) for number in range(40, 70)]


def written(folder: Path, rows: list[Row], files: int) -> str:
    folder.mkdir()
    for number in range(files):
        lines = [f'{{"id": {row.id}, "at": {row.at}}}\n' for row in rows[number::files]]
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return str(folder)


@pytest.fixture(params=["memory", "files"])
def sequence(request: pytest.FixtureRequest, tmp_path: Path) -> SequenceSource[Row]:
    if request.param == "memory":
        return SequenceSource(MemorySource(PAST, batch_rows=3), MemorySource(NOW, batch_rows=4, partitions=2))
    first = FileSource(written(tmp_path / "past", PAST, 3), Row, "jsonl")
    return SequenceSource(first, FileSource(written(tmp_path / "now", NOW, 2), Row, "jsonl"))


def test_it_keeps_the_contract_of_sources(sequence: SequenceSource[Row]) -> None:
    check_source(sequence, [*PAST, *NOW])


def polled(source: Source) -> list[Any]:
    """The ids of each read, and what else the source gives, as a task takes it."""
    found: list[Any] = []
    for _ in range(200):
        match source.poll(0):
            case Read(rows=(rows,)) as read:
                found.append(([] if rows is None else rows.column("id").to_pylist(), read.last))
            case Discovered(starts):
                source.discovered(starts)
                found.append(sorted(starts))
            case Wait() | End() as end:
                return [*found, type(end)]
    raise AssertionError("it does not end")


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_a_task_reads_its_part_of_the_second_source_after_that_of_the_first(
    sequence: SequenceSource[Row], parallelism: int
) -> None:
    rows: list[int] = []
    for index in range(parallelism):
        source = sequence.create((None,))
        source.open(index, parallelism)
        source.seek({})
        found = polled(source)
        reads = [read for read in found if isinstance(read, tuple)]
        ids = [id_ for read, _ in reads for id_ in read]
        assert [id_ >= 40 for id_ in ids] == sorted(id_ >= 40 for id_ in ids)
        starts = [place for place, step in enumerate(found) if isinstance(step, list)]
        ends = [place for place, step in enumerate(found) if isinstance(step, tuple) and step[1]]
        own = len(range(index, sequence.create((None,)).partitions(), parallelism))
        if starts and own:
            assert sum(place < starts[0] for place in ends) < own, "the first has not ended where the second begins"
        rows += ids
    assert sorted(rows) == [row.id for row in (*PAST, *NOW)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_over_both_have_all_rows_whatever_dies(sequence: SequenceSource[Row], parallelism: int) -> None:
    job = Job("sequence")
    rows = job.source(sequence, event_time="at", out_of_order="5s").named("rows").parallelism(parallelism)
    windows = rows.key_by(tenth="id").window(tumbling("10s")).aggregate(rows=count())
    windows.sink(MemorySink()).named("out")
    assert sum(row.rows for row in testing.run(job, {}, kills=2, seeds=3)["out"]) == len(PAST) + len(NOW)


def test_mistakes_are_named(tmp_path: Path) -> None:
    past = MemorySource(PAST)
    with pytest.raises(GraphError, match="SequenceSource: 5 is not a source"):
        SequenceSource(past, 5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="both sources must have the same columns: one has id, at, the other line"):
        SequenceSource(past, FileSource("x.txt"))
    with pytest.raises(GraphError, match=r"it takes sources of one stream: leave out \.catch\(\)"):
        SequenceSource(past, FileSource("x.jsonl", Row).catch())
    followed = FileSource(written(tmp_path / "past", PAST, 1), Row, "jsonl", follow=True)
    with pytest.raises(SourceError, match="FileSource does not end, so nothing would follow: leave out follow=True"):
        SequenceSource(followed, past).create((None,))
    with pytest.raises(SourceError, match="it takes sources whose rows can be read again"):
        SequenceSource(past, SocketSource("localhost", 9, Row)).create((None,))
    with pytest.raises(SourceError, match="it cannot have 37 tasks, but up to 36, or 48, 64, 96 or 128"):
        SequenceSource(past, past).create((None,)).open(0, 37)
