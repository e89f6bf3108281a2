"""Files in a real object store: the contracts of source and sink, followed folders, and what goes wrong there."""

from __future__ import annotations

import gzip
import io
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import obstore.store
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py.connectors import FileSink, FileSource, object_files, read_results, row_files
from clonos_py.connectors.followed_files import FollowedFiles
from clonos_py.model.errors import GraphError, SinkError, SourceError
from clonos_py.model.operators import Discovered, Read, Source, Wait
from clonos_py.model.record_codec import encode
from clonos_py.object_store.client import ObjectClient
from clonos_py.testing import check_sink, check_source
from tests.connectors.contexts import opened
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.connectors.test_sources import opened as source_of
from tests.connectors.test_sources import reads, rows_of
from tests.s3_server import BUCKET, BUSY, Refusal, S3Server

EXPIRED = Refusal(400, "ExpiredToken", "The provided token has expired.")
MINUTE_US = 60_000_000


@pytest.fixture(autouse=True)
def impatient_connectors(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    monkeypatch.setattr(object_files, "PATIENCE_S", 5.0)


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> obstore.store.ObjectStore:
    """A store in the process in place of the server: what has many steps is faster there."""
    objects = obstore.store.MemoryStore()
    monkeypatch.setattr(object_files, "open_client", lambda uri, *_: ObjectClient(objects, uri))
    return objects


def put(s3: S3Server, uri: str, content: bytes) -> None:
    s3.client().put_object(Bucket=BUCKET, Key=uri.removeprefix(f"s3://{BUCKET}/"), Body=content)


def content(suffix: str, items: Sequence[Item]) -> bytes:
    table = pa.Table.from_batches([encode(items, Item.schema())])
    into = io.BytesIO()
    match suffix:
        case "parquet":
            pq.write_table(table, into, row_group_size=7)
            return into.getvalue()
        case "csv.zst":
            pl.DataFrame(pl.from_arrow(table)).write_csv(into)
            return pa.Codec("zstd").compress(into.getvalue(), asbytes=True)
        case "jsonl.gz":  # of two members, as programs write that append to a file
            lines = [msgspec.json.encode(item) + b"\n" for item in items]
            return gzip.compress(b"".join(lines[:5])) + gzip.compress(b"".join(lines[5:]))
        case _:
            return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


def put_files(s3: S3Server, uri: str, suffix: str, files: int = 2, rows: int = 40) -> None:
    for number in range(files):
        put(s3, f"{uri}/{number}.{suffix}", content(suffix, ITEMS[:rows][number::files]))


# ---- reading


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv.zst", "jsonl.gz"])
def test_the_source_keeps_the_contract(suffix: str, in_memory: obstore.store.ObjectStore) -> None:
    for number in range(2):
        obstore.put(in_memory, f"in/{number}.{suffix}", content(suffix, ITEMS[:40][number::2]))
    check_source(FileSource(f"s3://bucket/in/*.{suffix}", Item), ITEMS[:40])


@pytest.mark.parametrize("suffix", ["jsonl.gz", "csv.zst"])
def test_compressed_files_of_a_disk_keep_the_contract(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(content(suffix, ITEMS[:40]))
    check_source(FileSource(str(tmp_path / f"a.{suffix}"), Item), ITEMS[:40])


def test_columns_that_are_not_read_are_not_requested(uri: str, s3: S3Server) -> None:
    items = [Item(number, f"{number} " + "x" * 2_000) for number in range(1_000)]
    table = pa.Table.from_batches([encode(items, Item.schema())])
    into = io.BytesIO()
    pq.write_table(table, into, use_dictionary=False, compression="none")
    put(s3, f"{uri}/a.parquet", into.getvalue())
    source = source_of(FileSource(f"{uri}/a.parquet", Item), ("number",))
    s3.requests.clear()
    assert [row["number"] for row in rows_of(reads(source))] == list(range(1_000))
    assert s3.requests == {"get": 2}, "the end of the file, and one column"


PATTERNS = {
    "*.jsonl": ["a.jsonl", "b.jsonl"],
    "": ["a.jsonl", "b.jsonl"],
    "/": ["a.jsonl", "b.jsonl"],
    "a.jsonl": ["a.jsonl"],
    "?.jsonl": ["a.jsonl", "b.jsonl"],
    "[!a].jsonl": ["b.jsonl"],
    "day=*/*.jsonl": ["day=1/c.jsonl", "day=2/d.jsonl"],
    "**/*.jsonl": ["a.jsonl", "b.jsonl", "day=1/c.jsonl", "day=2/d.jsonl", "day=2/hour=3/e.jsonl"],
}
NAMES = sorted({name for names in PATTERNS.values() for name in names})
HIDDEN = ["_a.jsonl", ".staged/x.jsonl", "_temporary/y.jsonl", "day=1/.z.jsonl"]


def test_a_uri_names_an_object_a_folder_or_a_pattern(uri: str, s3: S3Server) -> None:
    for name in (*NAMES, *HIDDEN):
        put(s3, f"{uri}/{name}", b"{}\n")
    for pattern, names in PATTERNS.items():
        place = f"{uri}/{pattern}" if pattern not in ("", "/") else uri + pattern
        found = FileSource(place, Item, "jsonl").files
        assert [file.path for file in found] == [f"{uri}/{name}" for name in names], pattern


def polled(source: Source, seconds: int = 0) -> list[int]:
    """The numbers of the rows that the source has after so many seconds, until it waits."""
    found: list[int] = []
    while not isinstance(read := source.poll(seconds * 1_000_000), Wait):
        if isinstance(read, Discovered):
            source.discovered(read.starts)
        else:
            assert isinstance(read, Read)
            found.extend(row["number"] for row in rows_of([read]))
    return found


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "jsonl.gz"])
def test_a_followed_folder_gives_the_rows_of_new_objects(suffix: str, uri: str, s3: S3Server) -> None:
    put(s3, f"{uri}/a.{suffix}", content(suffix, ITEMS[:10]))
    source = source_of(FileSource(uri, Item, suffix.removesuffix(".gz"), follow=True))
    source.seek({})
    assert polled(source) == list(range(10))
    put(s3, f"{uri}/b.{suffix}", content(suffix, ITEMS[10:20]))
    put(s3, f"{uri}/_c.{suffix}", content(suffix, ITEMS[:1]))
    assert polled(source, 1) == [], "objects are listed every five seconds"
    assert polled(source, 6) == list(range(10, 20))
    s3.client().delete_object(Bucket=BUCKET, Key=f"{uri}/a.{suffix}".removeprefix(f"s3://{BUCKET}/"))
    assert polled(source, 12) == []


def test_a_followed_object_that_is_replaced_ends_the_job(uri: str, s3: S3Server) -> None:
    put(s3, f"{uri}/a.jsonl", content("jsonl", ITEMS[:10]))
    source = source_of(FileSource(uri, Item, "jsonl", follow=True))
    assert isinstance(source, FollowedFiles)
    source.seek({})
    assert polled(source) == list(range(10))
    put(s3, f"{uri}/a.jsonl", content("jsonl", ITEMS[5:15]))
    with pytest.raises(SourceError, match=r"a\.jsonl was replaced by another object: a followed object must stay"):
        polled(source, 6)


# ---- what goes wrong while reading


def changed(s3: S3Server, uri: str, how: str) -> None:
    match how:
        case "replaced":
            put(s3, f"{uri}/0.jsonl", content("jsonl", ITEMS[5:45]))
        case "deleted":
            s3.client().delete_object(Bucket=BUCKET, Key=f"{uri}/0.jsonl".removeprefix(f"s3://{BUCKET}/"))
        case "credentials expire":
            s3.refusal = EXPIRED
        case "busy":
            s3.refusal = BUSY


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("replaced", r"0\.jsonl: cannot be read \(another object has taken its place"),
        ("deleted", r"0\.jsonl is missing; input files must stay as they are until the job has ended"),
        (
            "credentials expire",
            r"0\.jsonl: cannot be read \(access is refused \(status 400, ExpiredToken: The provided",
        ),
        ("busy", r"0\.jsonl: cannot be read \(the store at .* does not answer \(status 503, SlowDown"),
    ],
)
def test_what_goes_wrong_with_an_object_is_one_line(how: str, line: str, uri: str, s3: S3Server) -> None:
    put_files(s3, uri, "jsonl", files=1)
    source = source_of(FileSource(uri, Item, "jsonl"))
    changed(s3, uri, how)
    with pytest.raises(SourceError, match=line) as raised:
        source.poll(0)
    assert "\n" not in str(raised.value)


def test_a_store_that_is_busy_for_a_moment_is_asked_again(uri: str, s3: S3Server) -> None:
    put_files(s3, uri, "jsonl", files=1)
    source = source_of(FileSource(uri, Item, "jsonl"))
    s3.busy_answers = 1
    assert len(rows_of(reads(source))) == 40


def test_what_cannot_be_found_is_one_line_when_the_job_is_submitted(uri: str, s3: S3Server) -> None:
    lines = {
        f"{uri}/*.jsonl": r"\*\.jsonl: no such object; FileSource takes an object, a folder or a pattern",
        "s3://no-such-bucket/in/*.jsonl": r"cannot be read \(there is no such bucket .*: create it, or name another",
    }
    for place, line in lines.items():
        with pytest.raises(SourceError, match=line):
            _ = FileSource(place, Item).files
    s3.ask_for_credentials(True)
    try:
        with pytest.raises(SourceError, match=r"access is refused .*check AWS_ACCESS_KEY_ID"):
            _ = FileSource(f"{uri}/*.jsonl", Item).files
    finally:
        s3.ask_for_credentials(False)


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a bucket alone": (lambda: FileSource("s3://bucket", Item, "jsonl"), "names a bucket and no place in it"),
    "credentials": (lambda: FileSource("s3://key:secret@b/x.csv", Item), "give credentials, region and endpoint in"),
    "causal": (lambda: FileSink("s3://b/x", delivery="causal"), "files grow, and objects cannot"),
    "size": (lambda: FileSink("s3://b/x", roll="128"), "roll='128' is no size: write a number and a unit"),
    "roll on a disk": (lambda: FileSink("x", roll="1MB"), "roll is for object stores"),
    "compressed Parquet": (lambda: FileSink("x", "parquet", compression="zstd"), "compressed by themselves"),
    "compression": (lambda: FileSink("x", compression="lzo"), "unknown compression 'lzo'; choose one of gzip, zstd"),  # type: ignore[arg-type]
    "another URI": (lambda: FileSource("ftp://b/x.csv", Item), "is a URI, and only paths"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_when_the_job_is_defined(name: str) -> None:
    define, line = MISTAKES[name]
    with pytest.raises(GraphError, match=line):
        define()


def test_without_the_library_a_job_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("connectors.object_files", "object_store.client", "object_store.problems"):
        monkeypatch.delitem(sys.modules, f"clonos_py.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    for define in (lambda: FileSource("s3://b/x.csv", Item), lambda: FileSink("s3://b/x")):
        with pytest.raises(GraphError, match=r"need obstore: pip install 'clonos-py\[object-store\]'"):
            define()


# ---- writing


@pytest.mark.parametrize(
    ("format", "options"), [("parquet", {}), ("jsonl", {"partition_by": "text", "compression": "gzip", "roll": "1KB"})]
)
def test_the_sink_keeps_the_contract(
    format: str, options: dict[str, Any], in_memory: obstore.store.ObjectStore
) -> None:
    check_sink(FileSink("s3://bucket/out", format, **options), lambda: read_results("s3://bucket/out"), deaths=8)


def committed(sink: Any, checkpoint: int) -> bytes:
    committable = sink.prepare(checkpoint)
    sink.commit(committable)
    assert committable is not None
    return bytes(committable)


def keys(s3: S3Server, uri: str) -> list[str]:
    prefix = uri.removeprefix(f"s3://{BUCKET}/") + "/"
    found = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return [one["Key"].removeprefix(prefix) for one in found]


def test_files_are_closed_at_a_size(uri: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "GATHERED_ROWS", 10)
    sink = opened(FileSink(uri, "jsonl", partition_by="text", roll="1KB").create(Item.schema()))
    for start in range(0, 200, 20):
        sink.on_rows(encode([Item(n, f"t{n % 2}") for n in range(start, start + 20)], Item.schema()), 0)
    committable = committed(sink, 7)
    names = keys(s3, uri)
    assert names == [f"text=t{place}/out-0-7{part}.jsonl" for place in (0, 1) for part in (".1", "")]
    sink.commit(committable)
    assert keys(s3, uri) == names
    assert sorted(row["number"] for row in read_results(uri)) == list(range(200))


def test_what_a_dead_attempt_has_staged_is_removed(uri: str, s3: S3Server) -> None:
    definition = FileSink(uri)
    dead = opened(definition.create(Item.schema()))
    dead.on_rows(encode(ITEMS[:5], Item.schema()), 0)
    dead.prepare(1)
    replacement = opened(definition.create(Item.schema()))
    replacement.restore([])
    replacement.on_rows(encode(ITEMS[:5], Item.schema()), 0)
    committed(replacement, 1)
    replacement.on_rows(encode(ITEMS[5:9], Item.schema()), 0)
    committed(replacement, 2)
    assert keys(s3, uri) == ["out-0-1.jsonl", "out-0-2.jsonl"]
    assert [row["number"] for row in read_results(uri)] == list(range(9))


def test_a_commit_takes_one_copy_and_one_deletion(uri: str, s3: S3Server) -> None:
    sink = opened(FileSink(uri).create(Item.schema()))
    for checkpoint in (1, 2):
        s3.requests.clear()
        sink.on_rows(encode(ITEMS[:5], Item.schema()), 0)
        committed(sink, checkpoint)
    assert s3.requests == {"put": 1, "copy": 1, "delete": 1}


def test_a_commit_whose_rows_are_gone_is_one_line(uri: str, s3: S3Server) -> None:
    sink = opened(FileSink(uri).create(Item.schema()))
    sink.on_rows(encode(ITEMS[:5], Item.schema()), 0)
    committable = committed(sink, 1)
    s3.client().delete_object(Bucket=BUCKET, Key=f"{uri}/out-0-1.jsonl".removeprefix(f"s3://{BUCKET}/"))
    with pytest.raises(SinkError, match=r"is missing, and .*out-0-1\.jsonl was not written: restore the object"):
        sink.commit(committable)


def test_results_of_two_runs_are_not_mixed(uri: str, s3: S3Server) -> None:
    for _ in range(2):
        sink = opened(FileSink(uri).create(Item.schema()))
        if keys(s3, uri):
            with pytest.raises(SinkError, match="written by another run"):
                sink.on_rows(encode(ITEMS[:5], Item.schema()), 0)
            return
        sink.on_rows(encode(ITEMS[:5], Item.schema()), 0)
        committed(sink, 1)


def test_each_row_is_written_once_although_tasks_are_killed(uri: str, s3: S3Server, tmp_path: Path) -> None:
    put_files(s3, f"{uri}/in", "parquet", rows=len(ITEMS))
    source = FileSource(f"{uri}/in/*.parquet", Item)
    copy_with_kills(source, FileSink(f"{uri}/out", "parquet"), tmp_path / "checkpoints")
    assert Counter(row["number"] for row in read_results(f"{uri}/out")) == Counter(range(len(ITEMS)))
