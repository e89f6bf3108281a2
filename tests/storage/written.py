"""A small job that leaves every kind of file in its storage, interrupted twice, and its expected output."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos_py import Context, Instant, Job, Record, count, service
from clonos_py.connectors import FileSink, FileSource, UpsertFileSink, read_results
from clonos_py.connectors.causal_files import CausalFileWriter
from clonos_py.connectors.file_writer import FileWriter
from clonos_py.connectors.staging import StagedPiece
from clonos_py.job.events import Instructions
from clonos_py.model.operators import OutputSegment
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve

ROWS, KEYS, PARTS = 2_000, 7, 3
LETTER_EVERY = 30
LETTER_CHARACTERS = 70_000
"""More than a log takes: the answer is kept aside."""
SINKS = ("later", "placed", "at_once", "latest")
INTERVAL_MS = 250
PIECES_AFTER_CHECKPOINT = 2
"""With letters in them, whose answers a replay needs: on a busy machine a piece is a row or two."""

pause_s = 0.0
"""How long each row takes."""


class Row(Record):
    id: int
    key: int
    at: Instant


class Read(Record):
    id: int
    key: int
    part: str
    letter: int
    dice: float


class Counted(Record):
    key: int
    rows: int


def letter(id: int) -> str:
    return "".join(random.Random(id).choices("abcdefghij", k=LETTER_CHARACTERS // 100)) * 100


@service
def letters() -> Iterator[Callable[[int], str]]:
    yield letter


def read(row: Row, ctx: Context) -> Read:
    time.sleep(pause_s)
    answer = ctx.call(letters, row.id) if row.id % LETTER_EVERY == 0 else ""
    return Read(row.id, row.key, f"p{row.id % PARTS}", zlib.crc32(answer.encode()), ctx.random.random())


def job(folder: Path) -> Job:
    job = Job("written", key_groups=4)
    source = FileSource(str(folder.parent / "in.jsonl"), format="jsonl", schema=Row)
    rows = job.source(source, event_time="at").named("rows").map(read).named("read")
    out = folder / "out"
    rows.sink(FileSink(str(out / "later"))).named("later")
    rows.sink(FileSink(str(out / "placed"), partition_by="part")).named("placed")
    rows.sink(FileSink(str(out / "at_once"), delivery="causal")).named("at_once")
    counted = rows.key_by("key").aggregate(Counted, rows=count())
    counted.sink(UpsertFileSink(str(out / "latest"), key="key")).named("latest")
    return job


def run(folder: Path, **settings: Any) -> None:
    """Runs or resumes to the end. Raises the ClonosError that ended it."""
    chosen = {"runtime": "local", "checkpoint_interval": f"{INTERVAL_MS}ms", "standbys": 0, "linger": "5ms", **settings}
    run_job(job(folder), resolve({**chosen, "checkpoints": str(folder / "checkpoints")}))


def write(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Interrupted soon after its second checkpoint, and again after its fourth; each time the checkpoint is complete,
    transactional sinks have not committed it, and rows of the causal one after it are visible."""
    lines = (json.dumps({"id": id, "key": id % KEYS, "at": id * 1_000}) for id in range(ROWS))
    (folder.parent / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    patch.setattr("tests.storage.written.pause_s", 0.001)
    for checkpoint in (2, 4):
        with patch.context() as dying:
            interrupt_after(checkpoint, dying)
            with pytest.raises(KeyboardInterrupt):
                run(folder)
    patch.setattr("tests.storage.written.pause_s", 0.0)


def interrupt_after(checkpoint: int, patch: pytest.MonkeyPatch) -> None:
    """Once the checkpoint is complete, commits have no effect, and no other checkpoint begins; the process dies with a
    certain piece of causal rows."""
    commit, append, tick = FileWriter.commit, CausalFileWriter.append, CoordinatedCheckpoints.tick
    left = {"pieces": PIECES_AFTER_CHECKPOINT}
    completed: list[int] = []

    def dropped(self: FileWriter, committable: bytes) -> None:
        piece = msgspec.msgpack.decode(committable, type=StagedPiece)
        if piece.checkpoint < checkpoint:
            commit(self, committable)
        else:
            completed.append(piece.checkpoint)

    def last(self: CausalFileWriter, epoch: int, log: Any, pieces: Sequence[OutputSegment]) -> None:
        append(self, epoch, log, pieces)
        ids: list[Any] = [id for piece in pieces for id in piece.rows.column("id").to_pylist()]
        left["pieces"] -= bool(completed) and any(id % LETTER_EVERY == 0 for id in ids)
        if not left["pieces"]:
            raise KeyboardInterrupt

    def until(self: CoordinatedCheckpoints, running: bool) -> Instructions:
        return tick(self, running and self.completed.number < checkpoint)

    patch.setattr(CoordinatedCheckpoints, "tick", until)
    patch.setattr(FileWriter, "commit", dropped)
    patch.setattr(CausalFileWriter, "append", last)


def visible(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {sink: read_results(str(folder / "out" / sink)) for sink in SINKS}


def check(folder: Path, before: dict[str, list[dict[str, Any]]]) -> None:
    """Every sink has the rows of an undisturbed run: random values may differ from it, but are the same in all sinks,
    and the rows that were visible ``before`` have not changed."""
    check_part(folder, before)
    found = visible(folder)
    for sink in ("later", "placed", "at_once"):
        assert len(found[sink]) == ROWS, sink
    counted = Counter(id % KEYS for id in range(ROWS))
    assert {row["key"]: row["rows"] for row in found["latest"]} == dict(counted)
    assert len(found["latest"]) == KEYS


def check_part(folder: Path, before: dict[str, list[dict[str, Any]]]) -> None:
    """The visible rows are right, each is there once, sinks agree, and rows that were visible before have not
    changed."""
    found = visible(folder)
    drawn: dict[int, float] = {}
    for sink in ("later", "placed", "at_once"):
        rows = {row["id"]: row for row in found[sink]}
        assert len(rows) == len(found[sink]), f"{sink}: a row is visible twice"
        for id, row in rows.items():
            assert (row["key"], row["part"], row["letter"]) == (id % KEYS, f"p{id % PARTS}", _checksum(id)), sink
            assert drawn.setdefault(id, row["dice"]) == row["dice"], "sinks disagree"
        assert all(rows.get(row["id"]) == row for row in before[sink]), f"{sink}: a visible row has changed"


@cache
def _checksum(id: int) -> int:
    return zlib.crc32(letter(id).encode() if id % LETTER_EVERY == 0 else b"")
