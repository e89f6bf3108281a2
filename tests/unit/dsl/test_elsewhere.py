"""A method that does not exist says what to write instead, and what a job consists of shows itself in a line."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from clonos_py import GraphError, Job, Record, col, count, tumbling
from clonos_py.connectors import BlackholeSink, FileSource, MemorySource
from clonos_py.dsl import job as jobs
from clonos_py.dsl import streams
from clonos_py.dsl.elsewhere import INSTEAD


class Row(Record):
    key: int
    name: str


def rows() -> streams.Stream[Row]:
    return Job("job").source(MemorySource([Row(1, "a")])).named("rows")


@pytest.mark.parametrize("kind", INSTEAD)
def test_no_remedy_is_for_a_method_that_exists(kind: str) -> None:
    found = getattr(streams, kind, None) or getattr(jobs, kind)
    assert [name for name in INSTEAD[kind] if hasattr(found, name)] == []


BY_KEY = "state and timers belong to keys: write .key_by(...).process(...)"
MISSING: list[tuple[Callable[[], object], str, str]] = [
    (rows, "process", f"'Stream' object has no attribute 'process': {BY_KEY}"),
    (rows, "print", "'Stream' object has no attribute 'print': write .sink(PrintSink())"),
    (lambda: rows().map(same), "group_by", "'Mapped' object has no attribute 'group_by': write .key_by(...)"),
    (lambda: rows().key_by("key"), "filter", "'KeyedStream' object has no attribute 'filter': write it before key_by"),
    (
        lambda: rows().key_by("key").aggregate(n=count()),
        "map",
        "a table is not a stream: write it before the aggregate",
    ),
    (lambda: rows().window(tumbling("1s", processing_time=True)), "sum", "write .aggregate(total=col(...).sum())"),
    (lambda: Job("job"), "execute", "'Job' object has no attribute 'execute': write .run()"),
    (rows, "fliter", "'Stream' object has no attribute 'fliter'"),
]


@pytest.mark.parametrize(("made", "name", "message"), MISSING)
def test_a_method_that_does_not_exist_names_what_to_write(made: Callable[[], object], name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(made(), name)
    assert message in str(caught.value)


def same(row: Row) -> Row:
    return row


def test_a_format_in_the_place_of_the_rows_names_the_order() -> None:
    with pytest.raises(
        GraphError, match=r"^FileSource: the rows come before the format: write FileSource\(path, Row, 'j"
    ):
        FileSource("rows.jsonl", "jsonl", Row)  # type: ignore[arg-type]


def test_each_part_of_a_job_shows_itself_in_a_line() -> None:
    stream = rows()
    assert repr(stream) == "<Stream 'rows': key int64, name string>"
    assert repr(stream.key_by("key")) == "<KeyedStream by key: key int64, name string>"
    table = stream.key_by("key").aggregate(n=count())
    assert repr(table.named("counts")) == "<Table 'counts' by key: key int64, n int64>"
    wide = stream.with_columns(**{f"c{number}": col("key") for number in range(9)})
    assert repr(wide).endswith("c2 int64, c3 int64, 5 more>")
    assert repr(stream.sink(BlackholeSink()).named("out")) == "<Written 'out'>"
    assert repr(Job("job")) == "Job('job')"


def test_a_job_can_be_copied_and_asked_for_special_methods() -> None:
    job = Job("job")
    assert copy.copy(job).name == "job"
    assert pickle.loads(pickle.dumps(job)).name == "job"
    assert not hasattr(rows(), "_repr_html_")
