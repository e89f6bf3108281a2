"""Connections of a simulated network in which processes can be cut off from each other. A checker sees all frames."""

from __future__ import annotations

from functools import partial

from clonos_py.link.instructions import Connect, SendFrame
from clonos_py.runtime.executors.link import DataConnections
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.network import Network
from clonos_py.runtime.world.processes import LocalProcess


class CutOff:
    """The pairs of processes that cannot reach each other now."""

    def __init__(self) -> None:
        self._pairs: set[frozenset[int]] = set()

    def add(self, one: int, other: int) -> None:
        self._pairs.add(frozenset((one, other)))

    def discard(self, one: int, other: int) -> None:
        self._pairs.discard(frozenset((one, other)))

    def __call__(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._pairs


class HarshConnections:
    """A layer before the connections of one process: refuses cut-off peers, and shows sent frames to a checker."""

    def __init__(
        self,
        process: LocalProcess,
        inner: DataConnections,
        network: Network,
        actions: Actions,
        cut_off: CutOff,
        watch: InvariantChecker,
    ) -> None:
        self._process, self._inner, self._network, self._actions = process, inner, network, actions
        self._cut_off, self._watch = cut_off, watch
        self.disconnect, self.send_ack = inner.disconnect, inner.send_ack

    def connect(self, request: Connect) -> None:
        self._actions.after(
            "network", (self._process.number, "connect", request.input), partial(self._establish, request)
        )

    def _establish(self, request: Connect) -> None:
        """Called when the subscription arrives: refuses it if the two processes are cut off from each other then."""
        if self._cut_off(self._process.number, int(request.address)):
            self._network.refuse(self._process, request, "cut off")
        else:
            self._network.establish(self._process, request)

    def send_frame(self, request: SendFrame) -> None:
        self._watch.sent(self._process, request)
        self._inner.send_frame(request)
