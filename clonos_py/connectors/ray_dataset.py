"""The rows of a Ray Data dataset, which is executed once, when the job is submitted.

The blocks that Ray makes are partitions. They stay in Ray's object store, and an actor hands them out by number, so
that every task and its replacements read the same rows. References to the blocks cannot be part of a job: it is sent as
bytes, in which Ray does not see them. A run that resumes executes the dataset again: each block that was read before is
compared with its last read, and must be the same.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.casting import cast
from clonos_py.columns.compact import checksum
from clonos_py.connectors.file_reader import FileReader
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError, one_line
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of

if TYPE_CHECKING:
    from ray.data import Dataset

R = TypeVar("R", bound=Record, default=Any)

_PIECE_ROWS = 65_536
_NAMESPACE = "clonos-datasets"
_RAISED = re.compile(r"^\w[\w.]*(?:Error|Exception): .*$", re.MULTILINE)


class HeldDataset(NamedTuple):
    """The name of the actor that has the blocks, and the number of rows of each."""

    actor: str
    rows: Sequence[int]


class RayDataset(SourceDefinition[R]):
    """Reads a dataset of Ray Data, which has an end: ``job.source(RayDataset(dataset, Row))``.

    ``schema`` is the class of the rows or their columns; columns of the dataset that it does not have are not read. The
    dataset is executed when the job is submitted, in its own order, and its blocks are shared by the tasks. They stay
    in Ray's object store, which spills them to disk if they do not fit, until the process that has submitted the job
    ends. So a run that is detached cannot read a dataset: write that to files, and read these.

    A run that resumes executes the dataset again. It must give the same blocks: read the same files, and shuffle with a
    seed only. A block that was read before and has other rows now ends the job.
    """

    def __init__(self, dataset: Dataset, schema: type[R] | ArrowSchema) -> None:
        if not hasattr(dataset, "to_arrow_refs"):
            raise GraphError(f"RayDataset: {type(dataset).__name__} is no dataset: give what ray.data.read_... returns")
        self._dataset: Dataset | None = dataset
        self._actor: Any = None
        """The actor ends with its last handle."""
        self.schemas = (schema_of(schema),)
        self.records = (schema if isinstance(schema, type) else None,)

    def resolve(self) -> None:
        """Executes the dataset. Raises SourceError if that fails, or a column is missing."""
        _ = self._held

    def __getstate__(self) -> dict[str, Any]:
        """Executes the dataset before the job is submitted, so that all processes read the same blocks."""
        _ = self._held
        return self.__dict__ | {"_dataset": None, "_actor": None}

    @cached_property
    def _held(self) -> HeldDataset:
        import ray

        assert self._dataset is not None, "a definition is pickled with its blocks"
        name = f"dataset-{secrets.token_hex(8)}"
        options = self._dataset.context.execution_options
        ordered, options.preserve_order = options.preserve_order, True
        try:
            made = self._dataset.materialize()
            self._check(made.schema())
            actor: Any = ray.remote(_Blocks)
            self._actor = actor.options(name=name, namespace=_NAMESPACE, num_cpus=0).remote(made.to_arrow_refs())
            return HeldDataset(name, ray.get(self._actor.rows.remote()))
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"RayDataset: the dataset cannot be executed ({_reason(error)})") from error
        finally:
            options.preserve_order = ordered

    def _check(self, found: Any) -> None:
        names = [] if found is None else list(found.names)
        missing = [name for name in self.schemas[0].names if name not in names]
        if missing and names:
            raise SourceError(f"RayDataset: the dataset has no column {missing[0]!r}; it has {', '.join(names)}")

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        whole = self.schemas[0]
        schema = whole if requested is None else pa.schema([whole.field(name) for name in requested])
        held, rows_max = self._held, min(_PIECE_ROWS, read_rows or _PIECE_ROWS)
        return FileReader(len(held.rows), lambda number: _BlockPartition(held, number, schema, rows_max))


class _BlockPartition:
    """A block as a partition. Positions are row numbers."""

    def __init__(self, held: HeldDataset, number: int, schema: pa.Schema, rows_max: int) -> None:
        self.name = f"block {number} of the dataset"
        self._actor, self._number, self._count = held.actor, number, held.rows[number]
        self._schema, self._rows_max = schema, rows_max
        self._rows: pa.Table | None = None

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        if start > self._count:
            raise self._changed()
        if start == self._count:
            return None
        return self.between(start, min(self._count, start + min(self._rows_max, rows_max or self._rows_max)))

    def between(self, start: int, stop: int) -> PartitionRead:
        if stop > self._count:
            raise self._changed()
        rows = self._read(start, stop)
        last = stop == self._count
        if last:
            self._rows = None  # it is pinned in Ray's object store as long as it is here
        return PartitionRead(stop, rows, checksum(rows) if rows.num_rows else 0, last)

    def checksum(self, start: int, stop: int) -> int:
        """The checksum of a read."""
        if stop > self._count:
            raise self._changed()
        return checksum(self._read(start, stop)) if stop > start else 0

    def check_end(self, position: int) -> None:
        """Does nothing: a block does not grow."""

    def _read(self, start: int, stop: int) -> pa.RecordBatch:
        if self._rows is None:
            self._rows = self._load()
        found = self._rows.slice(start, stop - start)
        columns = []
        for field in self._schema:
            column = found.column(field.name).combine_chunks()
            try:
                columns.append(cast(column, field.type))
            except pa.ArrowException as error:
                raise SourceError(f"{self.name}: column {field.name!r}: {one_line(error)}") from error
            if column.null_count and not field.nullable:
                raise SourceError(f"{self.name}: column {field.name!r} has nulls; declare it '| None'")
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _load(self) -> pa.Table:
        import ray
        from ray.exceptions import RayError

        try:
            blocks: Any = ray.get_actor(self._actor, namespace=_NAMESPACE)
            found: pa.Table = ray.get(blocks.block.remote(self._number))
        except (RayError, ValueError) as error:
            raise SourceError(
                f"{self.name} is lost ({one_line(error)[:200]}): it lives as long as the process that submitted the "
                "job; for runs that are detached write the dataset to files, and read these"
            ) from error
        return found

    def _changed(self) -> SourceError:
        return SourceError(
            f"{self.name} has {self._count} rows now, and had more: the dataset must give the same blocks whenever it "
            "is executed; start over with --fresh"
        )


def _reason(error: Exception) -> str:
    """The first error in a text of Ray, which has the tracebacks of all processes that an error has passed."""
    text = str(error)
    found = _RAISED.search(text)
    return one_line(found[0] if found else text)[:300]


class _Blocks:
    """The actor that has the blocks."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = list(blocks)

    def rows(self) -> list[int]:
        return [self.block(number).num_rows for number in range(len(self._blocks))]

    def block(self, number: int) -> pa.Table:
        import ray

        found: pa.Table = ray.get(self._blocks[number])
        return found
