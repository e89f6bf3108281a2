"""Process actors of a run, opened on a node; some of them ahead of the requests for which they are needed.

A new actor takes a second or more until it can do anything. One that was opened ahead begins a process at once.
"""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.names import processes_of
from clonos_py.runtime.ray.process_actor import ProcessActor, concurrency

_NAME_BYTES = 6


class HostProcess(NamedTuple):
    """An actor. ``ready``: a reference that is done when Ray has started it."""

    actor: Any
    ready: Any


class OpenedActors:
    """Opens the actors of one run, and keeps those that have no process yet."""

    def __init__(self, cluster: Cluster, standbys_per_process: int, detached: str | None = None) -> None:
        """``detached``: what the names of the actors begin with, if they are to outlive this process."""
        self._class = import_ray().remote(ProcessActor)
        self._cluster, self._concurrency = cluster, concurrency(standbys_per_process)
        self.detached, self.namespace = detached, cluster.namespace
        self._ahead: defaultdict[str, list[HostProcess]] = defaultdict(list)
        """By node."""

    def open_ahead(self, count: int, nodes: Sequence[str]) -> None:
        """Opens actors for the next requests, spread over the nodes as processes will be (``placement.py``). They
        reserve nothing: where a process with a demand goes is known only when it is requested."""
        for number in range(count):
            node = nodes[number % len(nodes)]
            self._ahead[node].append(self._open(node))

    def await_ahead(self, timeout_s: float) -> bool:
        """Waits until all actors that were opened ahead have started; False if they have not within ``timeout_s``
        seconds. Raises RayActorError if one has ended."""
        ray, coming = import_ray(), [opened.ready for opened in self.ahead]
        if len(ray.wait(coming, num_returns=len(coming), timeout=timeout_s)[0]) < len(coming):
            return False
        ray.get(coming)
        return True

    @property
    def ahead(self) -> list[HostProcess]:
        """The actors that were opened ahead and have no process yet."""
        return list(itertools.chain.from_iterable(self._ahead.values()))

    def take(self, node: str, demand: Resources = NO_RESOURCES) -> HostProcess:
        """An actor on this node that has reserved this demand, which now is the caller's."""
        ahead = self._ahead[node]
        return ahead.pop(0) if ahead and not demand else self._open(node, demand)

    def close_ahead(self) -> None:
        """Kills the actors that were opened ahead and that no request needed."""
        for host_process in self.ahead:
            import_ray().kill(host_process.actor)
        self._ahead.clear()

    def _open(self, node: str, demand: Resources = NO_RESOURCES) -> HostProcess:
        options = {"max_concurrency": self._concurrency, **self._cluster.actor_options(demand)}
        if self.detached is not None:
            name = f"{self.detached}{secrets.token_hex(_NAME_BYTES)}"
            options |= {"name": name, "namespace": processes_of(self.namespace), "lifetime": "detached"}
        actor = self._class.options(scheduling_strategy=on_node(node), **options).remote()
        return HostProcess(actor, actor.__ray_ready__.remote())


def on_node(node: str) -> Any:
    """The scheduling strategy that puts an actor on this node. It is hard, because with a soft one Ray puts actors that
    reserve nothing on any node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
