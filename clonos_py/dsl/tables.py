"""The rows of a table: the operator that makes them, the verbs that map each row by itself, and how they are output.

How a table is output is known only when it is used: as changes, at the end, or as deltas for another table. So verbs
of rows are kept, and added behind the operator once that is known. Deltas keep their weight on the way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import Columns, node_with, result_fields
from clonos_py.dsl.shapes import listed
from clonos_py.dsl.timing import timed
from clonos_py.expressions.tree import Column, ExpressionNode
from clonos_py.model.aggregates import NEWEST, Aggregate
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record, schema_of
from clonos_py.model.resources import Resources
from clonos_py.model.tables import WEIGHT_COLUMN, kind_schema, weighted_schema
from clonos_py.plan.logical import (
    AggregateTable,
    AggregateWindowTable,
    FilterRows,
    JoinDeltas,
    MergeDeltas,
    ProjectColumns,
    ShowChanges,
    TopTable,
)

_DELTAS = "read by another verb"


class UpdatingRows(ABC):
    """Rows that are identified by ``keys``. ``output``: of the operator that makes the table, to which its verbs of
    rows belong."""

    def __init__(self, output: OutputPort, keys: tuple[str, ...], schema: pa.Schema) -> None:
        self.output = output
        self.keys = keys
        self.schema = schema

    @property
    @abstractmethod
    def shrinks(self) -> bool:
        """Whether a row can be deleted."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the verb that makes these rows; empty if it has none yet."""

    @property
    @abstractmethod
    def record(self) -> type[Record] | None:
        """Their class, if one was declared."""

    @abstractmethod
    def set_name(self, name: str) -> None: ...

    @abstractmethod
    def set_parallelism(self, tasks: int) -> None: ...

    @abstractmethod
    def set_ttl(self, ttl_us: int, site: CallSite) -> None:
        """Sets how long a row stays without another row of its key. Raises GraphError where another verb decides."""

    def set_resources(self, resources: Resources) -> None:
        """Sets what the tasks of the operator need."""
        self.output.draft.set_resources(self.output.port.node, resources)

    @abstractmethod
    def changes(self, kind: str | None, site: CallSite) -> OutputPort:
        """Each change, with its ``kind`` in a column of that name."""

    @abstractmethod
    def at_end(self) -> OutputPort:
        """The rows when all input has ended."""

    @abstractmethod
    def deltas(self, retract_when_changed: tuple[str, ...] | None = None) -> OutputPort:
        """The deltas that another table reads. ``retract_when_changed``: the earlier row need be retracted only if
        these columns change."""

    def upserts(self, moves: tuple[str, ...], site: CallSite) -> OutputPort:
        """The deltas for a reader in whose state a row replaces the one before, unless one of ``moves`` changes."""
        keys, rows = self.identified(), self.deltas()
        return rows.followed("upserts", MergeDeltas(keys, moves), (rows.schema,), site)

    def filtered(self, condition: ExpressionNode, site: CallSite) -> UpdatingRows:
        verb = _RowVerb("filter", FilterRows(condition), site, self.record)
        return _MappedRows(self, verb, self.keys, self.schema)

    def projected(
        self, verb: str, columns: Columns, site: CallSite, record: type[Record] | None = None
    ) -> UpdatingRows:
        """Raises GraphError if the columns that identify a row are not among them."""
        names = {node.column: name for name, node in reversed(columns) if isinstance(node, Column)}
        if lost := [key for key in self.keys if key not in names]:
            raise GraphError(
                f"{lost[0]!r} is a key of this table, by which its rows are updated: keep it among the columns"
            )
        schema = result_fields(columns, self.schema) if record is None else schema_of(record)
        keys = tuple(names[key] for key in self.keys)
        made = _RowVerb(verb, ProjectColumns(tuple(columns)), site, record)
        return _MappedRows(self, made, keys, schema)

    def identified(self) -> tuple[str, ...]:
        """The keys. Raises GraphError if one is not a column."""
        if missing := [key for key in self.keys if key not in self.schema.names]:
            raise GraphError(
                f"{missing[0]!r} is a key of this table, but not one of its columns: {listed(self.schema.names)}"
            )
        return self.keys

    def _shown_changes(self, kind: str | None, site: CallSite) -> OutputPort:
        """The changes, made from the deltas."""
        keys, rows = self.identified(), self.deltas()
        schema = self.schema if kind is None else kind_schema(self.schema, kind)
        record = self.record if kind is None else None
        return rows.followed("changes", ShowChanges(keys, kind), (schema,), site, (record,))


class _MadeRows(UpdatingRows):
    """The rows of the operator that makes a table. It outputs them in one mode."""

    _used: str | None = None

    def __init__(self, output: OutputPort, keys: tuple[str, ...], shrinks: bool, schema: pa.Schema) -> None:
        super().__init__(output, keys, schema)
        self._shrinks = shrinks
        self._record = output.record

    @property
    def shrinks(self) -> bool:
        return self._shrinks

    @property
    def name(self) -> str:
        return self.output.node.name

    @property
    def record(self) -> type[Record] | None:
        return self._record

    def set_name(self, name: str) -> None:
        self.output.draft.name(self.output.port.node, name)

    def set_parallelism(self, tasks: int) -> None:
        self.output.draft.set_parallelism(self.output.port.node, tasks)

    def set_ttl(self, ttl_us: int, site: CallSite) -> None:
        work, rows = self.output.node.work, OutputPort(self.output.draft, self.output.node.inputs[0])
        if isinstance(work, AggregateWindowTable) and work.window is None:
            raise GraphError(
                "forever() keeps the rows of all keys; for a ttl aggregate without a window, .aggregate(...).ttl(...)"
            )
        if isinstance(work, AggregateWindowTable):
            raise GraphError("state of windows ends with them: leave the ttl out, or aggregate without a window")
        if isinstance(work, TopTable) and not work.order:
            raise GraphError("this table loses the rows that its changes delete: leave the ttl out")
        if isinstance(work, JoinDeltas) or _of_a_table(work):
            raise GraphError("this table loses the rows that the tables it is made of lose: set the ttl there")
        if self._used is not None:
            raise GraphError(f"this table is {_use_of(self._used)} already: set the ttl before that")
        if not self.output.node.exchange(0):
            raise GraphError("this table has no keys, so no row of it is ever without others: leave the ttl out")
        assert isinstance(work, AggregateTable | TopTable)
        taken, time = timed(rows, site)
        changed: AggregateTable | TopTable
        if isinstance(work, TopTable):
            changed = replace(work, ttl_us=ttl_us, time_column=time)
        else:
            newest = Aggregate("max", time, NEWEST, taken.schema.field(time).type)
            changed = replace(work, ttl_us=ttl_us, aggregates=(*work.aggregates, newest))
        self.output.changed(work=changed, inputs=(taken.port,), times=(None,))
        self._shrinks = True

    def changes(self, kind: str | None, site: CallSite) -> OutputPort:
        work = self.output.node.work
        if isinstance(work, JoinDeltas) or self._used == _DELTAS:
            return self._shown_changes(kind, site)
        self._use(".changes()" if kind is None else f".changes(kind={kind!r})")
        schema = self.schema if kind is None else kind_schema(self.schema, kind)
        return self._set(schema, mode="changes", kind=kind)

    def at_end(self) -> OutputPort:
        self._use(".at_end()")
        return self._set(self.schema, mode="at_end")

    def deltas(self, retract_when_changed: tuple[str, ...] | None = None) -> OutputPort:
        again = self._used == _DELTAS
        self._use(_DELTAS)
        work = self.output.node.work
        if isinstance(work, JoinDeltas):
            return self.output
        assert isinstance(work, AggregateTable | AggregateWindowTable | TopTable)
        if again and work.retract_when_changed != retract_when_changed:
            retract_when_changed = None
        return self._set(weighted_schema(self.schema), mode="deltas", retract_when_changed=retract_when_changed)

    def _use(self, label: str) -> None:
        if self._used not in (None, label):
            too_early = label == _DELTAS and self._used.startswith(".changes(")
            remedy = "write that behind the other verbs of the table" if too_early else "write it twice to have both"
            raise GraphError(f"this table is {_use_of(self._used)} already; {remedy}")
        self._used = label

    def _set(self, schema: pa.Schema, **changes: Any) -> OutputPort:
        """Sets the mode of the operator, and the columns that it outputs."""
        work = self.output.node.work
        assert isinstance(work, AggregateTable | AggregateWindowTable | TopTable | JoinDeltas)
        record = self._record if schema.names == self.schema.names else None
        return self.output.changed(work=replace(work, **changes), schemas=(schema,), records=(record,))


@dataclass(frozen=True)
class _RowVerb:
    """A verb that maps each row by itself. ``work``: what it does to rows without a weight."""

    verb: str
    work: FilterRows | ProjectColumns
    site: CallSite
    record: type[Record] | None
    name: str = ""

    def added(self, rows: OutputPort) -> OutputPort:
        """Adds it behind rows, which may carry a weight."""
        if isinstance(self.work, FilterRows):
            found = rows.same_rows(self.verb, self.work, self.site)
        elif WEIGHT_COLUMN in rows.schema.names:
            weight = (WEIGHT_COLUMN, node_with(WEIGHT_COLUMN))
            found = rows.projected(self.verb, [*self.work.columns, weight], self.site)
        else:
            found = rows.projected(self.verb, list(self.work.columns), self.site, self.record)
        if self.name:
            found.draft.name(found.port.node, self.name)
        return found


class _MappedRows(UpdatingRows):
    """The rows of a table behind a verb of rows."""

    _deltas: OutputPort | None = None

    def __init__(self, before: UpdatingRows, verb: _RowVerb, keys: tuple[str, ...], schema: pa.Schema) -> None:
        super().__init__(before.output, keys, schema)
        self._before = before
        self._verb = verb

    @property
    def shrinks(self) -> bool:
        return isinstance(self._verb.work, FilterRows) or self._before.shrinks

    @property
    def name(self) -> str:
        return self._verb.name

    @property
    def record(self) -> type[Record] | None:
        return self._verb.record

    def set_name(self, name: str) -> None:
        self._verb = replace(self._verb, name=name)

    def set_parallelism(self, tasks: int) -> None:
        raise GraphError(f"{self._verb.verb} runs in the tasks of the table before it: set the parallelism there")

    def set_ttl(self, ttl_us: int, site: CallSite) -> None:
        raise GraphError(f"{self._verb.verb} keeps no rows: set the ttl on the table before it")

    def changes(self, kind: str | None, site: CallSite) -> OutputPort:
        if kind is None and self._deltas is None:
            return self._verb.added(self._before.changes(None, site))
        return self._shown_changes(kind, site)

    def at_end(self) -> OutputPort:
        return self._verb.added(self._before.at_end())

    def deltas(self, retract_when_changed: tuple[str, ...] | None = None) -> OutputPort:
        if self._deltas is None:
            self._deltas = self._verb.added(self._before.deltas())
        return self._deltas


def _of_a_table(work: Any) -> bool:
    """Whether it reads the deltas of another table."""
    return work.weighted if isinstance(work, AggregateTable) else work.table_keys is not None


def _use_of(label: str) -> str:
    return f"used as {label}" if label.startswith(".") else label


def updating_rows(
    output: OutputPort, keys: Sequence[str], shrinks: bool, schema: pa.Schema | None = None
) -> UpdatingRows:
    """The rows that an operator makes. ``schema``: theirs, if the output has further columns."""
    return _MadeRows(output, tuple(keys), shrinks, output.schema if schema is None else schema)
