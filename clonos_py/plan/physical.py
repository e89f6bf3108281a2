"""The planner: makes a physical plan from a job and its settings, by way of rewrites, chaining, names and edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import pyarrow as pa

from clonos_py.model.connectors import Delivery
from clonos_py.model.errors import GraphError, SettingError
from clonos_py.model.operators import Operator, PartwiseOperator
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.protocols import FootprintPolicy
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.model.retention import Spill
from clonos_py.plan.chaining import SOURCE, DraftVertex, DraftVertices, edge, vertex_name
from clonos_py.plan.event_time import idle_us
from clonos_py.plan.factories import source_plan
from clonos_py.plan.framing import Adaptive, rows_per_frame, rows_per_read
from clonos_py.plan.held_event_time import held_event_time
from clonos_py.plan.lasting_state import lasting_state
from clonos_py.plan.loaded_tables import loaded_tables
from clonos_py.plan.logical import (
    AssignEventTimes,
    FilterRows,
    LogicalGraph,
    Node,
    ProjectColumns,
    ReadSource,
    Spread,
    Unite,
    WriteSink,
)
from clonos_py.plan.pickling import check_portable
from clonos_py.plan.recovery_notes import recovery_notes
from clonos_py.plan.regeneration import obstacles
from clonos_py.plan.rewrite import rewritten
from clonos_py.plan.state_definitions import state_definition
from clonos_py.settings.definitions import Guarantee, Preference, Runtime, Settings
from clonos_py.settings.kinds import FULL_DEPTH, show_duration, show_size
from clonos_py.settings.resolution import resolve

_OWN = AssignEventTimes | FilterRows | ProjectColumns | Unite | Spread | ReadSource
"""Work without state that the engine does itself, without calling user code."""


MEMORY_BYTES_MIN = 128 << 20
"""The least limit for the memory of a task: its process takes about 80 MiB before it has any state."""


class Plannable(Protocol):
    """The interface of a job to the planner."""

    @property
    def settings(self) -> Any: ...

    def graph(self) -> LogicalGraph: ...


def plan(job: Plannable, settings: Settings | None = None, *, parallelism: int | None = None) -> PhysicalPlan:
    """The physical plan of a job. ``settings`` default to those of the job itself; ``parallelism`` overrides them.

    Raises GraphError if the job cannot run as written, SettingError if settings contradict it.
    """
    chosen = resolve(job.settings) if settings is None else settings
    if parallelism is not None:
        chosen = _at_parallelism(chosen, parallelism)
    written = job.graph()
    graph = rewritten(written)
    _check_causal_sinks(graph, chosen)
    _check_parallelism(graph, chosen)
    chains = DraftVertices(graph, chosen.parallelism, chosen.chaining)
    names = {chain.number: vertex_name(chain) for chain in chains.chains}
    adaptive = Adaptive(chains.links)
    vertices = tuple(_vertex(graph, written, chain, names[chain.number], chosen, adaptive) for chain in chains.chains)
    edges = tuple(
        edge(
            link,
            number,
            names,
            *rows_per_frame(link.target, link.consumer, chosen.frame_rows),
            adaptive.into(link.target, link.consumer),
        )
        for number, link in enumerate(chains.links)
    )
    made = PhysicalPlan(
        job=graph.job,
        vertices=vertices,
        edges=edges,
        key_groups=chosen.key_groups,
        sharing_depth=chosen.sharing_depth,
        gaps=chosen.guarantee is Guarantee.AT_MOST_ONCE,
        protocol=chosen.protocol,
        rollback=chosen.rollback,
        standby_cpus=chosen.standby_cpus,
        standby_feed_us=chosen.standby_feed_us,
        record=chosen.record,
        footprints=FootprintPolicy(
            chosen.extent_max, chosen.replay_max, chosen.check_time_us, chosen.check_period_us, chosen.mtbf_us
        ),
        settings={found.name: getattr(chosen, found.name) for found in fields(Settings) if found.metadata},
        written_settings=dict(chosen.written()),
        notes=(
            *graph.notes,
            *_chain_notes(vertices),
            _shuffle_note(edges),
            *lasting_state(graph),
            *loaded_tables(graph),
            *recovery_notes(graph, chosen),
            *_regeneration_notes(chains, names, chosen),
        ),
        warnings=(*unreadable_sinks(written, chosen), *held_event_time(written.without_dead_ends())),
    )
    _check_loops(made, chosen)
    _check_logs(made)
    return replace(
        made,
        notes=(*made.notes, *_loop_notes(made), *_depth_notes(made, chosen), *_feed_notes(made), *_parts_notes(made)),
    )


def unreadable_sinks(graph: LogicalGraph, settings: Settings) -> Iterator[str]:
    """One line for each sink whose rows could not be read after a run with these settings, which is refused."""
    if settings.runtime is not Runtime.RAY:
        return
    for node in graph.nodes:
        if isinstance(node.work, WriteSink) and node.work.definition.only_here:
            kind = type(node.work.definition).__name__
            yield (
                f"{node.where}: {node.name}: {kind} keeps its rows in the process of its task, and on Ray they cannot "
                "be read there: run the job with runtime='local', or write to a FileSink and use read_results"
            )


def _feed_notes(plan: PhysicalPlan) -> list[str]:
    """How standbys are kept near their tasks, if they are fed."""
    if not plan.standby_feed_us:
        return []
    fed = {task.vertex for task in plan.tasks if plan.feeds(task)}
    others = [vertex.name for vertex in plan.vertices if vertex.name not in fed and not plan.regenerates(vertex)]
    resume = [vertex.name for vertex in plan.vertices if plan.regenerates(vertex)]
    notes = [f"standbys are fed every {show_duration(plan.standby_feed_us)}: {', '.join(sorted(fed)) or 'none'}"]
    if resume:
        notes.append(f"restarts at a landmark of its log instead: {', '.join(resume)}")
    if others:
        notes.append(f"not fed, since it has no standby: {', '.join(others)}")
    return notes


def _parts_notes(plan: PhysicalPlan) -> list[str]:
    """Whose state is saved in parts, if the protocol does that."""
    if not plan.protocol.partwise:
        return []
    in_parts = [vertex.name for vertex in plan.vertices if plan.saved_in_parts(vertex) is not None]
    whole = [vertex.name for vertex in plan.vertices if vertex.name not in in_parts and _keeps_state(vertex)]
    notes = [f"saved window by window, or key by key: {', '.join(in_parts) or 'none'}"]
    if whole:
        notes.append(f"saved as a whole, by what has changed: {', '.join(whole)}")
    return notes


def _keeps_state(vertex: Vertex) -> bool:
    return any(operator.stateful for operator in vertex.operators)


def _check_logs(plan: PhysicalPlan) -> None:
    """Raises GraphError if two tasks would write the same log."""
    for task in plan.tasks:
        if (other := plan.logs[task.log_id]) != task:
            raise GraphError(
                f"the logs of {task} and {other} would have the same number, which is made from the names: give "
                f"{task.vertex!r} or {other.vertex!r} another name"
            )


def _at_parallelism(settings: Settings, parallelism: int) -> Settings:
    if not 1 <= parallelism <= settings.key_groups:
        raise SettingError(f"parallelism is {parallelism}: it must be from 1 to the {settings.key_groups} key groups")
    return replace(settings, parallelism=parallelism)


def _check_parallelism(graph: LogicalGraph, settings: Settings) -> None:
    for node in graph.nodes:
        if node.parallelism is not None and node.parallelism > settings.key_groups:
            raise SettingError(
                f"{node.where}: {node.name!r} has parallelism {node.parallelism}: it must be from 1 to the "
                f"{settings.key_groups} key groups ({settings.origin('key_groups')})"
            )


def _vertex(
    graph: LogicalGraph, written: LogicalGraph, chain: DraftVertex, name: str, settings: Settings, adaptive: Adaptive
) -> Vertex:
    source: SourcePlan | None = None
    leaves = settings.runtime is Runtime.RAY
    if chain.source is not None:
        source = source_plan(chain.source, *rows_per_read(chain), adaptive.out_of(chain, SOURCE))
        event_time = replace(source.event_time, idle_us=idle_us(chain, source.event_time.idle_us))
        source = replace(source, event_time=event_time)
        check_portable(source.factory, chain.source.name, chain.source.where, leaves=leaves)
    operators = []
    for operator, origin, inputs in zip(chain.operators, chain.origins, chain.inputs, strict=True):
        operators.append(operator if origin is None else _defined(graph, written, operator, origin, inputs, leaves))
    regenerates = source is not None and not any(obstacles(chain, settings.protocol))
    sampled = all(origin is None or isinstance(origin.work, _OWN) for origin in chain.origins)
    return Vertex(
        name=name,
        parallelism=chain.parallelism,
        source=source,
        operators=tuple(operators),
        wires=tuple(chain.wires),
        standbys=settings.standbys,
        resources=_needed(chain),
        regenerates=regenerates,
        sampled=sampled,
    )


def _needed(chain: DraftVertex) -> Resources:
    """What a task of the chain needs. Raises GraphError if that could not be had on any machine, or is too little."""
    nodes = [node for node in (chain.source, *chain.origins) if node is not None]
    needed = sum((node.resources for node in nodes), NO_RESOURCES)
    if 0 < needed.memory_bytes < MEMORY_BYTES_MIN:
        asking = next(node for node in nodes if node.resources.memory_bytes)
        raise GraphError(
            f"{asking.where}: {asking.name}: memory is the limit of a whole process, which needs some by itself: "
            f"give at least {show_size(MEMORY_BYTES_MIN)}"
        )
    if needed.gpus > 1 and not needed.gpus.is_integer():
        asking = next(node for node in nodes if node.resources.gpus)
        raise GraphError(
            f"{asking.where}: {asking.name}: the operators of its task need {needed.gpus:g} GPUs together, and more "
            "than one must be a whole number: change gpus=, or give an operator tasks of its own with parallelism"
        )
    return needed


def _defined(
    graph: LogicalGraph,
    written: LogicalGraph,
    operator: OperatorPlan,
    origin: Node,
    inputs: Sequence[pa.Schema],
    leaves: bool,
) -> OperatorPlan:
    """The operator with the definition of its state. Raises GraphError if it cannot be sent or built."""
    check_portable(operator.factory, operator.name, origin.where, leaves=leaves)
    constructed = _constructed(operator, origin.where)
    tables = constructed.tables(inputs)
    partwise = isinstance(constructed, PartwiseOperator) and constructed.partwise
    definition = state_definition(graph, origin, tables, written)
    return replace(operator, tables=tables, definition=definition, partwise=partwise)


def _constructed(operator: OperatorPlan, where: str) -> Operator:
    """The operator. Building one checks its arguments and opens no connections, so errors show now and not in a task.
    Raises GraphError if it cannot be built."""
    try:
        return operator.factory()
    except GraphError as error:
        raise GraphError(f"{where}: {operator.name}: {error}") from error


def _check_causal_sinks(graph: LogicalGraph, settings: Settings) -> None:
    """Raises SettingError if a causal sink cannot receive every upstream log, which its output must hold (D16)."""
    for node in graph.nodes:
        causal = isinstance(node.work, WriteSink) and node.work.definition.delivery == Delivery.CAUSAL
        if causal and settings.sharing_depth != FULL_DEPTH:
            raise SettingError(
                f"{node.where}: sink {node.name!r} has delivery='causal', which needs sharing_depth = full; it is "
                f"{settings.sharing_depth} ({settings.origin('sharing_depth')})"
            )
        if causal and not settings.protocol.coordinated:
            raise SettingError(
                f"{node.where}: sink {node.name!r} has delivery='causal', which needs checkpoints of all tasks; "
                f"protocol is {settings.protocol} ({settings.origin('protocol')}): choose another delivery or protocol"
            )


def _check_loops(made: PhysicalPlan, settings: Settings) -> None:
    """Raises SettingError for a partial sharing depth in a loop: every task there is both upstream and downstream of
    every other, so a log must reach all of them to be of use (E11)."""
    if made.loops and 0 < settings.sharing_depth < made.depth:
        raise SettingError(
            f"the loop at {made.loops[0].head!r} needs sharing_depth = full or 0; it is {settings.sharing_depth} "
            f"({settings.origin('sharing_depth')}): a task in a loop depends on what it has sent itself, over every "
            "task of the loop"
        )


def _loop_notes(made: PhysicalPlan) -> list[str]:
    names = [vertex.name for vertex in made.vertices]
    return [
        f"loop at {loop.head!r}: rows circulate in {', '.join(n for n in names if n in loop.members)}; it ends when "
        "all that enters it has ended and no rows are left in it"
        for loop in made.loops
    ]


def _chain_notes(vertices: tuple[Vertex, ...]) -> list[str]:
    return [f"chained into {v.name!r}: {', '.join(v.members)}" for v in vertices if len(v.members) > 1]


def _regeneration_notes(chains: DraftVertices, names: dict[int, str], settings: Settings) -> list[str]:
    if settings.spill is not Spill.REGENERATE:
        return []
    notes = []
    for chain in chains.chains:
        if chain.source is not None:
            why = "; ".join(obstacles(chain, settings.protocol))
            what = f"keeps its frames: {why}" if why else "makes its frames again"
            notes.append(f"{names[chain.number]!r} {what}")
    return notes


def _depth_notes(made: PhysicalPlan, settings: Settings) -> list[str]:
    if not 0 < settings.sharing_depth < made.depth:
        return []
    beyond = "rolls back" if settings.beyond_sharing_depth is Preference.CONSISTENCY else "continues at-least-once"
    covered = f"sharing depth {settings.sharing_depth} of {made.depth} covers that many consecutive failures"
    return [f"{covered}; with more at once the job {beyond}"]


def _shuffle_note(edges: tuple[Edge, ...]) -> str:
    counts = Counter(edge.partitioning for edge in edges)
    broadcast = f", {counts[Partitioning.BROADCAST]} to all tasks" if counts[Partitioning.BROADCAST] else ""
    return f"shuffles: {counts[Partitioning.HASH]} by key, {counts[Partitioning.REBALANCE]} rebalancing{broadcast}"
