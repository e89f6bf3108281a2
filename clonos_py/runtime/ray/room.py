"""Whether the nodes of a cluster have what the tasks of a job need, and what to say if they have not."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from clonos_py.model.errors import ClusterError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.resources import Resources
from clonos_py.observe.units import resources_text
from clonos_py.runtime.placement import Placement
from clonos_py.runtime.ray.cluster import NodeResources, node_resources

_RELEASED_S = 5.0
"""The time that Ray gets to take back what actors had reserved that are ending: those of a run before."""
_POLL_S = 0.25
_NODES_SHOWN = 3


def await_room(plan: PhysicalPlan) -> None:
    """Returns once the nodes have room for all tasks of a plan. Raises ClusterError if they have not; at once, if they
    would not have it without anything else on them, either."""
    if plan.undemanding == len(plan.tasks):
        return
    until_s = time.monotonic() + _RELEASED_S
    while True:
        nodes = check_nodes(plan)
        left = {node: found.free for node, found in nodes.items()}
        if (task := first_without_room(plan, left)) is None:
            return
        if time.monotonic() > until_s:
            raise ClusterError(_no_room(plan, task, "nodes have left", left, nodes))
        time.sleep(_POLL_S)


def check_nodes(plan: PhysicalPlan) -> dict[str, NodeResources]:
    """What the nodes have. Raises ClusterError if the tasks of a plan would not fit on them with nothing else there."""
    nodes = node_resources()
    whole = {node: found.total for node, found in nodes.items()}
    if (task := first_without_room(plan, whole)) is not None:
        raise ClusterError(_no_room(plan, task, "nodes have", whole, nodes))
    return nodes


def first_without_room(plan: PhysicalPlan, free: Mapping[str, Resources]) -> TaskId | None:
    """The first task that finds no room when the tasks of a plan are placed on nodes with this left; None if all do."""
    placement = Placement()
    for number, task in enumerate(plan.tasks_by_demand):
        demand = plan.demand(task)
        if demand and placement.place(number, task, list(free), demand=demand, free=free) is None:
            return task
    return None


def _no_room(
    plan: PhysicalPlan, task: TaskId, verb: str, amounts: Mapping[str, Resources], nodes: Mapping[str, NodeResources]
) -> str:
    demand, vertex = plan.demand(task), plan.by_name[task.vertex]
    each = f"each of its {vertex.parallelism} tasks needs" if vertex.parallelism > 1 else "it needs"
    alone = any(demand.fits_in(amount) for amount in amounts.values())
    beside = " beside the other tasks of the job" if alone else ""
    shown = _amounts_text(demand, ((nodes[node].host, amount) for node, amount in amounts.items()))
    runs = f" (which runs {', '.join(vertex.members)})" if len(vertex.members) > 1 else ""
    return (
        f"there is no room for {task.vertex!r}{runs}: {each} {resources_text(demand)}, which no node has{beside}; "
        f"{verb}: {shown}; add a node, or ask for less with resources(...)"
    )


def lacking_text(demand: Resources, nodes: Iterable[NodeResources]) -> str:
    """Why no node can take a process, now."""
    left = _amounts_text(demand, ((node.host, node.free) for node in nodes))
    return f"it needs {resources_text(demand)}, and nodes have left: {left}"


def _amounts_text(demand: Resources, amounts: Iterable[tuple[str, Resources]]) -> str:
    """Of what is demanded, what each node has."""
    shown = [f"{host} {resources_text(_of_kinds(demand, amount))}" for host, amount in amounts]
    more = len(shown) - _NODES_SHOWN
    return "; ".join(shown[:_NODES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _of_kinds(demand: Resources, amount: Resources) -> Resources:
    return Resources(
        amount.cpus if demand.cpus else 0.0,
        amount.memory_bytes if demand.memory_bytes else 0,
        amount.gpus if demand.gpus else 0.0,
    )
