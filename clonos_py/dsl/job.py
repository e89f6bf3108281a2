"""``Job``: the program that a user writes, from sources to sinks. Defining a job connects to nothing (P8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

import pyarrow as pa

from clonos_py.dsl.callsite import located
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.elsewhere import Helpful
from clonos_py.dsl.naming import check_length, stem_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import is_event_time
from clonos_py.dsl.row_counts import check_row_count
from clonos_py.dsl.runs import FinishedRun, JobHandle, check_not_loading, runner
from clonos_py.dsl.shapes import listed
from clonos_py.dsl.streams import Stream
from clonos_py.model.connectors import MultiSourceDefinition, SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names
from clonos_py.model.operators import EventTime
from clonos_py.model.record import Record
from clonos_py.model.times import Duration, micros
from clonos_py.plan.logical import EventTimeColumn, LogicalGraph, Node, Port, ReadSource, WriteSink

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_TIMES = (str, type(None))
R = TypeVar("R", bound=Record)


class Job(Helpful):
    """A job. Its name identifies it when it resumes from a checkpoint. ``settings`` are defaults for its runs,
    below the command line, the environment and ``clonos.toml``."""

    def __init__(self, name: str, **settings: Any) -> None:
        with located("Job"):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise GraphError(f"{name!r} is not a valid job name: use letters, digits, '_', '-' and '.'")
            check_length(name)
        self.name = name
        self.settings: Mapping[str, Any] = settings
        self._draft = Draft(name)

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    @overload
    def source(
        self, definition: MultiSourceDefinition, *, event_time: str | Sequence[str | None] | None = None,
        out_of_order: Duration = "0s", idle: Duration | None = None, ahead: Duration | None = None,
    ) -> tuple[Stream[Any], ...]: ...  # fmt: skip
    @overload
    def source(
        self, definition: SourceDefinition[R], *, event_time: str | Sequence[str | None] | None = None,
        out_of_order: Duration = "0s", idle: Duration | None = None, ahead: Duration | None = None,
    ) -> Stream[R]: ...  # fmt: skip
    def source(
        self,
        definition: SourceDefinition,
        *,
        event_time: str | Sequence[str | None] | None = None,
        out_of_order: Duration = "0s",
        idle: Duration | None = None,
        ahead: Duration | None = None,
    ) -> Stream[Any] | tuple[Stream[Any], ...]:
        """Reads a source: returns a stream, or one stream for each of its ports.

        ``event_time``: the column with the event time, one for all ports that have it or one for each port;
        ``out_of_order``: how far a row may be behind an earlier one of its partition; ``idle``: a partition that
        delivers nothing for that long does not hold the watermark back; ``ahead``: how far its watermark may be ahead
        of that of the slowest source before it waits.
        """
        with located("source") as site:
            if not isinstance(definition, SourceDefinition):
                raise GraphError(f"{definition!r} is not a source")
            for schema in definition.schemas:
                check_names(schema.names, f"a stream of {type(definition).__name__}")
            time = _event_time(definition.schemas, event_time, out_of_order, idle, ahead)
            ports = len(definition.schemas)
            node = self._draft.add(
                "source", ReadSource(definition, time, (None,) * ports), (), definition.schemas, site,
                definition.records or (None,) * ports,
                tuple(EventTimeColumn(column) if column else None for column in time.columns),
                stem_of("source", definition),
            )  # fmt: skip
            streams = tuple(Stream[Any](OutputPort(self._draft, Port(node.id, port))) for port in range(ports))
            several = ports > 1 or isinstance(definition, MultiSourceDefinition)
            return streams if several else streams[0]

    # ---- running it from Python

    def run(self, **settings: Any) -> FinishedRun:
        """Runs the job until its sources end, with the view of ``clonos run`` on standard error.

        ``settings`` are those of the command line, such as ``runtime="local"``, ``parallelism=4`` and
        ``checkpoints="checkpoints"``. They take precedence over the environment, ``clonos.toml`` and ``Job(...)``. On
        Ray, functions of the job are sent to other processes; write them in a module or a notebook's cell.

        Raises GraphError or SettingError before anything starts, later the error that ended the job, and
        KeyboardInterrupt if the run is interrupted. The last checkpoint stays intact.
        """
        with located("run"):
            check_not_loading()
        return runner().run(self, settings)

    def start(self, **settings: Any) -> JobHandle:
        """Runs the job in a thread of this process and returns at once; ``settings`` as for ``run``.

        The handle has ``counters``, ``wait()`` and ``stop()``. The run ends with this process.
        """
        with located("start"):
            check_not_loading()
        return runner().start(self, settings)

    def preview(self, stream: Stream[Any] | str, rows: int = 20, timeout: Duration = "10s") -> pa.Table:
        """The first ``rows`` rows of a stream, or those that arrive within ``timeout``, as an Arrow table. A name
        stands for the output of that operator, or for the input of that sink.

        The sources are read from their beginning, in this process, with one task for each operator. The preview writes
        to no sink, keeps no checkpoint, and commits no offsets. It does call the functions before the stream, including
        those that call a service. To preview a table, pass its ``.changes()`` or ``.at_end()``.

        Raises GraphError for anything that is no stream of this job, and the error that ended the run.
        """
        with located("preview") as site:
            output = self._output(stream)
            check_row_count("rows", rows)
            timeout_us = micros(timeout)
        return runner().preview(output, rows, timeout_us, site)

    def graph(self) -> LogicalGraph:
        """The finished graph. Raises GraphError if the job as a whole is invalid."""
        return self._draft.graph()

    @property
    def sources(self) -> dict[str, SourceDefinition]:
        """The sources by name."""
        return {n.name: n.work.definition for n in self.graph().nodes if isinstance(n.work, ReadSource)}

    @property
    def sinks(self) -> dict[str, SinkDefinition]:
        """The sinks by name."""
        return {n.name: n.work.definition for n in self.graph().nodes if isinstance(n.work, WriteSink)}

    def record_of(self, name: str, port: int = 0) -> type[Record]:
        """The class of the rows of a source's port, or of the rows that a sink takes."""
        from clonos_py.model.record import record_type

        node = self._connector(name)
        return node.records[port] or record_type(node.schemas[port])

    def with_connectors(
        self, replacements: Mapping[str, SourceDefinition | SinkDefinition], source_parallelism: int | None = None
    ) -> Job:
        """The same job with other sources and sinks, by name; ``txns`` also matches ``source-txns`` and ``sink-txns``.
        ``source_parallelism``: the number of tasks of the new sources, None to keep that of the sources that they
        replace.

        Raises GraphError for an unknown name, a sink in place of a source, and columns other than the job was written
        for.
        """
        other = Job(self.name, **self.settings)
        nodes = {node.id: node for node in self.graph().nodes}
        for name, definition in replacements.items():
            node = self._connector(name)
            nodes[node.id] = replace(node, work=_replaced(node, definition))
            if isinstance(node.work, ReadSource) and source_parallelism is not None:
                nodes[node.id] = replace(nodes[node.id], parallelism=source_parallelism)
        other._draft = Draft(self.name, nodes.values())
        return other

    def with_parallelism(self, tasks: Mapping[str, int]) -> Job:
        """The same job with other numbers of tasks, by operator. Raises GraphError for an unknown name, and for a
        number that its operator cannot have."""
        nodes = {node.name: node for node in self.graph().nodes}
        other = Job(self.name, **self.settings)
        other._draft = Draft(self.name, nodes.values())
        for name, count in tasks.items():
            if name not in nodes:
                raise GraphError(f"job {self.name!r} has no operator {name!r}; it has {listed(nodes)}")
            other._draft.set_parallelism(nodes[name].id, count)
        return other

    def leading_to(self, sinks: Iterable[str]) -> Job:
        """The same job with only these sinks and what leads to them. Raises GraphError for an unknown name."""
        nodes = {node.id: node for node in self.graph().nodes}
        needed: set[int] = set()
        reached = [self._connector(name).id for name in sinks]
        while reached:
            if (number := reached.pop()) not in needed:
                needed.add(number)
                reached += [port.node for port in nodes[number].read]
        other = Job(self.name, **self.settings)
        other._draft = Draft(self.name, [node for number, node in nodes.items() if number in needed])
        return other

    def _output(self, stream: Stream[Any] | str) -> OutputPort:
        """Raises GraphError for anything that is no stream of this job."""
        if isinstance(stream, str):
            found = {node.name: node for node in self.graph().nodes}
            if stream not in found:
                raise GraphError(f"job {self.name!r} has no operator {stream!r}; it has {listed(found)}")
            node = found[stream]
            return OutputPort(self._draft, Port(node.id) if node.schemas else node.inputs[0])
        if not isinstance(stream, Stream):
            raise GraphError(f"{stream!r} is not a stream; of a table, give .changes() or .at_end()")
        if stream._output.draft is not self._draft:
            raise GraphError(f"the stream belongs to job {stream._output.draft.job!r}, not to {self.name!r}")
        return stream._output

    def _connector(self, name: str) -> Node:
        found = [n for n in self.graph().nodes if isinstance(n.work, ReadSource | WriteSink)]
        exact = [node for node in found if node.name == name]
        short = [node for node in found if node.name in (f"source-{name}", f"sink-{name}")]
        if len(exact or short) != 1:
            raise GraphError(
                f"job {self.name!r} has no single source or sink {name!r}; it has {listed(n.name for n in found)}"
            )
        return (exact or short)[0]


def _event_time(
    schemas: tuple[pa.Schema, ...],
    given: str | Sequence[str | None] | None,
    out_of_order: Duration,
    idle: Duration | None,
    ahead: Duration | None,
) -> EventTime:
    columns = _time_columns(schemas, given)
    for schema, column in zip(schemas, columns, strict=True):
        if column is None:
            continue
        if schema.get_field_index(column) < 0:
            raise GraphError(f"event_time: no column {column!r}; there are {listed(schema.names)}")
        if not is_event_time(found := schema.field(column).type):
            raise GraphError(f"event_time: column {column!r} is {found}; declare it datetime or Instant")
    out_of_order_us, idle_us = micros(out_of_order), None if idle is None else micros(idle)
    if out_of_order_us < 0 or (idle_us is not None and idle_us <= 0):
        raise GraphError(f"out_of_order={out_of_order!r}, idle={idle!r}: neither can be negative, nor idle 0")
    ahead_us = None if ahead is None else micros(ahead)
    if ahead_us is not None and (ahead_us < 0 or not any(columns)):
        raise GraphError(f"ahead={ahead!r}: it is a distance in event time, so it needs event_time=, and is at least 0")
    return EventTime(columns, out_of_order_us, idle_us, ahead_us)


def _time_columns(schemas: tuple[pa.Schema, ...], given: str | Sequence[str | None] | None) -> tuple[str | None, ...]:
    if given is None:
        return (None,) * len(schemas)
    if isinstance(given, str):
        found = tuple(given if given in schema.names else None for schema in schemas)
        return found if any(found) else (given,) * len(schemas)
    if len(given) != len(schemas) or not all(isinstance(column, _TIMES) for column in given):
        raise GraphError(f"event_time={given!r}: the source has {len(schemas)} ports, give a name or None for each")
    return tuple(given)


def _replaced(node: Node, definition: SourceDefinition | SinkDefinition) -> ReadSource | WriteSink:
    match node.work:
        case ReadSource() as work if isinstance(definition, SourceDefinition):
            _check_columns(node, definition)
            return replace(work, definition=definition)
        case WriteSink() as work if isinstance(definition, SinkDefinition):
            return replace(work, definition=definition)
    raise GraphError(f"{node.name} is a {node.verb}, but {type(definition).__name__} is not")


def _check_columns(node: Node, definition: SourceDefinition) -> None:
    if len(definition.schemas) != len(node.schemas):
        raise GraphError(
            f"{node.name} has {len(node.schemas)} ports, {type(definition).__name__} {len(definition.schemas)}"
        )
    for declared, given in zip(node.schemas, definition.schemas, strict=True):
        for field in declared:
            if field.name not in given.names or given.field(field.name).type != field.type:
                found = given.field(field.name).type if field.name in given.names else "missing"
                raise GraphError(
                    f"{node.name}: column {field.name!r} is {field.type} in the job, {found} in its replacement"
                )
