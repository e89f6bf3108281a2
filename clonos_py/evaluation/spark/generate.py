"""Writes Nexmark events as Parquet (a folder per kind, a file per partition, and a description), or to Kafka."""

from __future__ import annotations

from pathlib import Path

from clonos_py.evaluation.nexmark.description import write_description
from clonos_py.evaluation.nexmark.generator import KINDS
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.kafka import generate_into
from clonos_py.evaluation.spark.kafka_topics import KafkaTopics
from clonos_py.evaluation.spark.session import named_errors, session, shown
from clonos_py.model.errors import SettingError

_ROW_GROUP_BYTES = 32 << 20
"""Row groups are small, so that a run that resumes in the middle of one skips little."""


def check_target(out: str) -> Path | KafkaTopics:
    """The folder or topics to write to. Raises SettingError if events cannot be written there."""
    if out.startswith("kafka:"):
        return KafkaTopics.parse(out)
    if "://" in out:
        raise SettingError(
            f"{out} is not a folder: events are written to a folder that every node has, --out events/, or to Kafka"
        )
    folder = Path(out).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError(f"{folder} already exists: remove it, or choose another folder")
    return folder


def generate(source: NexmarkSource, target: Path | KafkaTopics, master: str | None = None) -> None:
    """Writes the events. Partition p of each kind holds partition p of the source, in stream order."""
    if isinstance(target, KafkaTopics):
        generate_into(target, source, master)
    else:
        _generate_files(source, target, master)


def _generate_files(source: NexmarkSource, folder: Path, master: str | None) -> None:
    with session("nexmark generate", master) as spark:
        from clonos_py.evaluation.spark.sources import events_of  # needs pyspark, for which the session has checked

        for kind in KINDS:
            events = events_of(spark, source, kind)
            with shown(spark, f"{kind} events"), named_errors(f"events cannot be written to {folder}"):
                events.write.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(str(folder / kind))
    write_description(folder, source)
