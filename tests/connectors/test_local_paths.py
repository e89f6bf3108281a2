"""Paths that no file source or sink can read or write get an error that says why."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Job, Record
from clonos_py.connectors import FileSink, FileSource, UpsertFileSink, read_results
from clonos_py.model.errors import GraphError, SinkError, SourceError
from clonos_py.model.object_uris import names_objects


class Line(Record):
    id: int


@pytest.mark.parametrize("uri", ["s3://bucket/out", "gs://bucket", "file:///tmp/out", "abfs+x://a"])
def test_a_uri_is_no_local_folder(uri: str) -> None:
    with pytest.raises(GraphError, match="is a URI, and only paths of the file system are supported"):
        UpsertFileSink(uri, "id")
    for make in (FileSink, FileSource, read_results) if not names_objects(uri) else ():
        with pytest.raises(GraphError, match="is a URI, and only paths of the file system are supported"):
            make(uri)
    FileSink("s3:/bucket/out")
    FileSource("2026-01-31T09:30/a.txt")


def test_an_empty_folder_and_one_with_hidden_files_only_are_named(tmp_path: Path) -> None:
    (tmp_path / "_half").touch()
    (tmp_path / "below").mkdir()
    with pytest.raises(SourceError, match="the folder has no files to read"):
        _ = FileSource(str(tmp_path)).files
    with pytest.raises(SourceError, match="no such file"):
        _ = FileSource(str(tmp_path / "*.csv")).files


def test_a_pipe_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file, so it cannot be read again"):
        _ = FileSource(str(tmp_path / "pipe")).files
    with pytest.raises(SourceError, match="not a regular file, so it cannot be read again"):
        FileSource(str(tmp_path / "pipe"), follow=True).resolve()


def test_a_name_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"x\n")
    with pytest.raises(SourceError, match=r"caf\\udce9\.txt': the name of the file is not UTF-8; rename it"):
        _ = FileSource(str(tmp_path)).files
    followed = FileSource(str(tmp_path), follow=True).create((None,))
    followed.open(0, 1)
    followed.seek({})
    with pytest.raises(SourceError, match="the name of the file is not UTF-8; rename it"):
        followed.poll(0)


def test_results_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"none does not exist: give the folder that a file sink has written to"):
        read_results(tmp_path / "none")
    wrong: Any = None
    with pytest.raises(GraphError, match="read_results: None is not a path"):
        read_results(wrong)
    files = {"rows.jsonl": b'{"id":\n', "rows.parquet": b"PAR1"}
    for name, content in files.items():
        folder = tmp_path / f"of {name}"
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(SinkError, match=rf"{name} is damaged or not of a file sink \(.*\): restore it"):
            read_results(folder)
        with pytest.raises(SinkError, match=rf"{name} is no folder: give the folder"):
            read_results(folder / name)
    (tmp_path / "empty").mkdir()
    assert read_results(tmp_path / "empty") == []


def test_a_path_is_text_or_a_pathlib_path(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id\n7\n")
    job = Job("paths", checkpoints=tmp_path / "checkpoints", checkpoint_interval=timedelta(seconds=1))
    job.source(FileSource(tmp_path / "in.csv", Line)).sink(FileSink(tmp_path / "out"))
    job.run(runtime="local")
    assert read_results(tmp_path / "out") == [{"id": 7}]
    assert (tmp_path / "checkpoints").is_dir()
    wrong: Any
    for wrong in ("", None, b"out", ["a.csv", "b.csv"]):
        for make in (FileSink, lambda path: FileSource(path, Line, "csv"), lambda path: UpsertFileSink(path, "id")):
            with pytest.raises(GraphError, match=r"is not a path: give one as text or as a pathlib\.Path"):
                make(wrong)


def test_columns_to_partition_by_are_named_by_text() -> None:
    wrong: Any
    for wrong in (5, [1], None):
        with pytest.raises(GraphError, match="it takes the name of a column, or several"):
            FileSink("out", partition_by=wrong)
