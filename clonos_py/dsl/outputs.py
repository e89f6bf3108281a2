"""An output of a node in the draft, to which verbs add nodes, with the schema, class and event time of its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.projection import Columns, carried, node_with, result_fields
from clonos_py.model.record import Record, schema_of
from clonos_py.plan.logical import EventTimeColumn, Node, Port, ProjectColumns, Work


@dataclass(frozen=True)
class OutputPort:
    """A port of a node of the draft. Verbs add further nodes downstream of it."""

    draft: Draft
    port: Port

    @property
    def node(self) -> Node:
        """The current version of the node; later verbs may change it."""
        return self.draft.nodes[self.port.node]

    @property
    def schema(self) -> pa.Schema:
        return self.node.schemas[self.port.port]

    @property
    def record(self) -> type[Record] | None:
        """The declared class of its rows, if there is one."""
        return self.node.records[self.port.port]

    @property
    def time(self) -> EventTimeColumn | None:
        return self.node.times[self.port.port]

    def sibling(self, port: int) -> OutputPort:
        """Another output of the same node."""
        return OutputPort(self.draft, Port(self.port.node, port))

    def changed(self, **changes: Any) -> OutputPort:
        """Changes its node and returns the port itself."""
        self.draft.change(self.port.node, **changes)
        return self

    def followed(
        self,
        verb: str,
        work: Work,
        schemas: tuple[pa.Schema, ...],
        site: CallSite,
        records: tuple[type[Record] | None, ...] = (),
        times: tuple[EventTimeColumn | None, ...] = (),
        others: tuple[OutputPort, ...] = (),
    ) -> OutputPort:
        """Adds a node downstream of this port and of ``others``. Returns its first output."""
        inputs = (self.port, *(other.port for other in others))
        node = self.draft.add(verb, work, inputs, schemas, site, records, times)
        return OutputPort(self.draft, Port(node.id))

    def same_rows(self, verb: str, work: Work, site: CallSite) -> OutputPort:
        """Adds an operator that leaves rows unchanged."""
        return self.followed(verb, work, (self.schema,), site, (self.record,), (self.time,))

    def projected(self, verb: str, columns: Columns, site: CallSite, record: type[Record] | None = None) -> OutputPort:
        """Adds a projection to these columns, as rows of ``record``."""
        schema = result_fields(columns, self.schema) if record is None else schema_of(record)
        time = carried(self.time, schema, columns)
        return self.followed(verb, ProjectColumns(tuple(columns)), (schema,), site, (record,), (time,))

    def extended(self, columns: Columns, site: CallSite) -> OutputPort:
        """Adds computed columns, if there are any."""
        if not columns:
            return self
        kept = [(name, node_with(name)) for name in self.schema.names if name not in dict(columns)]
        return self.projected("with_columns", [*kept, *columns], site)

    def only(self, rows: OutputPort, site: CallSite) -> OutputPort:
        """Drops columns that were computed on the way: only those of ``rows``, its input, remain."""
        if self.schema.names == rows.schema.names:
            return self
        return self.projected("with_late", [(name, node_with(name)) for name in rows.schema.names], site, rows.record)
