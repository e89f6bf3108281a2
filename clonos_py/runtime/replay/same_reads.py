"""Sources of a comparison: those of the changed job give what those of the recorded job have read (F3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from clonos_py.model.errors import RecordError
from clonos_py.model.operators import Read, Source
from clonos_py.model.plan import PhysicalPlan, SourcePlan
from clonos_py.runtime.replay.sources import patched, with_sources

Piece = tuple[int, int, int]
"""Partition and offsets."""


@dataclass
class Reads:
    """The reads of one source that wait for the changed job. In one event a task reads a few pieces."""

    schemas: tuple[pa.Schema, ...]
    waiting: dict[Piece, Read] = field(default_factory=dict)

    def add(self, read: Read) -> None:
        """The recorded job has read this. Rows that nobody asks for are dropped with the next event."""
        self.waiting[read.partition, read.start, read.stop] = read


AllReads = dict[str, Reads]
"""By name of a source."""


def heard(plan: PhysicalPlan, reads: AllReads) -> PhysicalPlan:
    """The plan of the recorded job, whose reads are noted."""
    return with_sources(plan, lambda source, vertex: partial(_heard, source.factory, reads[source.name]))


def repeated(plan: PhysicalPlan, reads: AllReads) -> PhysicalPlan:
    """The plan of the changed job, which gets the same reads."""
    return with_sources(plan, lambda source, vertex: partial(_repeated, source, reads[source.name]))


def _heard(factory: Callable[[], Source], reads: Reads) -> Source:
    source = factory()
    passes, rereads = source.passed, source.reread

    def passed(read: Read) -> None:
        reads.add(read)
        passes(read)

    def reread(partition: int, start: int, stop: int) -> Read:
        read = rereads(partition, start, stop)
        reads.add(read)
        return read

    return patched(source, passed=passed, reread=reread)


def _repeated(plan: SourcePlan, reads: Reads) -> Source:
    source = plan.factory()
    rereads, logs_rows = source.reread, source.logs_rows

    def reread(partition: int, start: int, stop: int) -> Read:
        given = reads.waiting.pop((partition, start, stop))
        if plan.schemas == reads.schemas:
            return given
        if not logs_rows:
            return _checked(plan, rereads(partition, start, stop), given)
        ports = zip(given.rows, plan.schemas, strict=True)
        return given._replace(rows=tuple(_projected(plan.name, rows, schema) for rows, schema in ports))

    return patched(source, reread=reread, logs_rows=False)


def _checked(plan: SourcePlan, read: Read, given: Read) -> Read:
    """Other columns of the same events have another checksum in some sources."""
    if (read.event_count, read.last) != (given.event_count, given.last):
        raise RecordError(
            f"source {plan.name!r} of the changed job gives other rows than were recorded: a comparison needs the same "
            "input for both"
        )
    return read._replace(checksum=given.checksum)


def _projected(name: str, rows: pa.RecordBatch | None, schema: pa.Schema) -> pa.RecordBatch | None:
    if rows is None:
        return None
    if missing := [column for column in schema.names if column not in rows.schema.names]:
        raise RecordError(
            f"source {name!r} of the changed job reads column {missing[0]!r}, which was not read in the recorded run: "
            "its rows are in the record only as they were read then"
        )
    return rows.select(schema.names).cast(schema)
