"""Files of the past, and then a topic from where they end: each row once, whatever dies, also after a resume."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py import Job
from clonos_py.connectors import FileSink, FileSource, KafkaSource, SequenceSource, read_results
from clonos_py.connectors.kafka.client import Client, Message
from clonos_py.observe.events import TaskFailed
from tests.kafka.test_client import write
from tests.kafka.test_jobs import ROWS, run, with_words
from tests.kafka.words import Word

ARCHIVED = 600
"""The messages that are in the files: 300 of each partition."""


def slowly(word: Word) -> Word:
    """So that tasks die while rows come."""
    time.sleep(0.0005)
    return word


def archive(folder: Path) -> None:
    """The first messages of the topic, as files."""
    folder.mkdir()
    for file in range(3):
        numbers = range(file, ARCHIVED, 3)
        rows = pa.table({"word": [f"w{n % 10}" for n in numbers], "number": list(numbers)})
        pq.write_table(rows.select(Word.schema().names).cast(Word.schema()), folder / f"{file}.parquet")


def job(topic: str, at: dict[str, Any], folder: Path) -> Job:
    made = Job("kafka-sequence")
    start = {(topic, number): ARCHIVED // 2 for number in range(2)}
    past = FileSource(str(folder / "past" / "*.parquet"), Word)
    now = KafkaSource(topic, Word, start=start, stop="latest", **at)
    words = made.source(SequenceSource(past, now)).named("words")
    words.map(slowly).sink(FileSink(str(folder / "out"))).named("out")
    return made


@pytest.fixture
def words(client: Client, topic: str) -> str:
    return with_words(client, topic)


def test_the_topic_follows_the_files_at_its_offset(
    client: Client, words: str, at: dict[str, Any], tmp_path: Path
) -> None:
    archive(tmp_path / "past")
    kills = ("words[0]@50ms", "words[1]@300ms")
    events = run(job(words, at, tmp_path), tmp_path / "checkpoints", *kills, runtime="local")
    assert sum(isinstance(event, TaskFailed) for event in events) == len(kills)
    assert Counter(row["number"] for row in read_results(str(tmp_path / "out"))) == Counter(range(ROWS))
    more = [b'{"word": "w", "number": %d}' % n for n in range(ROWS, ROWS + 10)]
    write(client, *(Message(words, row, partition=n % 2) for n, row in enumerate(more)))
    run(job(words, at, tmp_path), tmp_path / "checkpoints", runtime="local")
    assert Counter(row["number"] for row in read_results(str(tmp_path / "out"))) == Counter(range(ROWS + 10))
