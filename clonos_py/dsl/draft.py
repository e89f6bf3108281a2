"""The graph of a job while the user writes it: nodes are added and renamed; names are resolved at the end (P3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.naming import check_length
from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record
from clonos_py.model.resources import Resources
from clonos_py.plan.logical import (
    EventTimeColumn,
    LogicalGraph,
    Node,
    Port,
    ReadSource,
    Spread,
    Unite,
    Work,
    WriteSink,
    renamed,
)

_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Draft:
    """A graph under construction, owned by one Job. A node's id is its position in ``nodes``."""

    def __init__(self, job: str, nodes: Iterable[Node] = ()) -> None:
        self.job = job
        self.nodes: list[Node] = list(nodes)

    def add(
        self,
        verb: str,
        work: Work,
        inputs: tuple[Port, ...],
        schemas: tuple[pa.Schema, ...],
        site: CallSite,
        records: tuple[type[Record] | None, ...] = (),
        times: tuple[EventTimeColumn | None, ...] = (),
        stem: str = "",
    ) -> Node:
        """Adds a node. ``records`` and ``times`` may be shorter than ``schemas``: the other ports have no class or
        event time. ``stem`` is its default name. Raises GraphError for rows without columns."""
        if any(not schema.names for schema in schemas):
            raise GraphError("its rows would have no columns, and so could not be counted: give them at least one")
        all_records = (*records, *([None] * (len(schemas) - len(records))))
        all_times = (*times, *([None] * (len(schemas) - len(times))))
        node = Node(
            id=len(self.nodes), verb=verb, work=work, inputs=inputs, schemas=schemas, where=str(site),
            records=all_records, times=all_times, stem=stem or verb,
        )  # fmt: skip
        self.nodes.append(node)
        return node

    def change(self, node: int, **changes: Any) -> Node:
        self.nodes[node] = replace(self.nodes[node], **changes)
        return self.nodes[node]

    def name(self, node: int, name: str) -> None:
        """Sets a stable name. Raises GraphError for a name that is taken or cannot be written on a command line."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise GraphError(f"{name!r} is not a valid name: use letters, digits, '_', '-' and '.', a letter first")
        check_length(name)
        for other in self.nodes:
            if other.name == name and other.id != node:
                raise GraphError(f"{name!r} is the name of the {other.verb} at {other.where} already; names are unique")
        self.nodes[node] = renamed(self.nodes[node], name)

    def set_parallelism(self, node: int, parallelism: int) -> None:
        """Sets the number of tasks of a node. Raises GraphError if it has no tasks of its own, or must have one."""
        found = self.nodes[node]
        if not isinstance(parallelism, int) or parallelism < 1:
            raise GraphError(f"{parallelism!r} is not a number of tasks: it must be at least 1")
        self._check_has_tasks(node, "parallelism")
        if parallelism > 1 and found.inputs and found.exchange(0) == ():
            raise GraphError(
                f"all rows meet in one task here, not in {parallelism}: write key_by before it to have more"
            )
        self.change(node, parallelism=parallelism)

    def set_resources(self, node: int, resources: Resources) -> None:
        """Sets what each task of a node needs for it. Raises GraphError if it has no tasks of its own."""
        self._check_has_tasks(node, "resources")
        self.change(node, resources=resources)

    def _check_has_tasks(self, node: int, what: str) -> None:
        found = self.nodes[node]
        if isinstance(found.work, Unite | Spread):
            raise GraphError(f"a {found.verb} has no tasks of its own: set the {what} on the verb that follows")

    def graph(self) -> LogicalGraph:
        """The finished graph, with a name for every node. Raises GraphError where default names would not be stable."""
        taken = {node.name: node for node in self.nodes if node.name}
        named = []
        for node in self.nodes:
            found = node if node.name else renamed(node, self._default_name(node, taken))
            taken[found.name] = found
            named.append(found)
        return LogicalGraph(self.job, tuple(named)).checked()

    def _default_name(self, node: Node, taken: dict[str, Node]) -> str:
        """The stem if it is free, else the stem with a number. Raises GraphError where a node with state, a source or a
        sink would need a number, since that would change when nodes are added before it."""
        stem = node.stem
        keeps_state = node.stateful or isinstance(node.work, ReadSource | WriteSink)
        if stem not in taken:
            return stem
        if keeps_state:
            first = taken[stem]
            if self.nodes[first.id].name:
                raise GraphError(
                    f"{node.where}: the {node.verb} is named {stem!r} by default, and the {first.verb} at "
                    f"{first.where} has that name: one of them needs another; add .named('...')"
                )
            raise GraphError(
                f"{node.where}: a second {stem!r}, the first is at {first.where}: what keeps state needs a "
                "stable name of its own; add .named('...')"
            )
        return next(name for n in range(2, len(self.nodes) + 2) if (name := f"{stem}-{n}") not in taken)
