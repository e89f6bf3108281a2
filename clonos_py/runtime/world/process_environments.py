"""The environments of link and task of one process of a world: each call becomes an action after a delay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from clonos_py.link.instructions import LinkEvent, Spilling
from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.errors import ClonosError
from clonos_py.model.messages import ToCoordinator
from clonos_py.process.contract import FromTask, Observed, ToTask
from clonos_py.runtime.executors.link import DataConnections, LinkEnvironment
from clonos_py.runtime.executors.low_priority import AtOnce
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.executors.task import TaskEnvironment
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.services.asking import answered


def _nothing() -> None:
    pass


class ProcessEnvironments:
    """The environments of one process: ``of_link`` and ``of_task`` return them."""

    def __init__(
        self,
        process: LocalProcess,
        actions: Actions,
        dispatcher: Dispatcher,
        send_to_coordinator: Callable[[Hashable, ToCoordinator], None],
        observe: Callable[[Observed], None],
        end_process: Callable[[int], object],
        call: Callable[[ServiceCall, Callable[[Answered], None]], None] | None,
        store: Callable[[Callable[[], Callable[[], None]]], None] | None,
    ) -> None:
        """``send_to_coordinator``: its first argument names the queue. ``call``: see ``WorldSettings``, ``store``: see
        ``OutsideStorage``."""
        self._process, self._actions, self._dispatcher = process, actions, dispatcher
        self._send_to_coordinator, self._observe = send_to_coordinator, observe
        self._end_process, self._call_outside, self._store_outside = end_process, call, store
        number = process.number
        self._to_task, self._from_task = (number, "to task"), (number, "from task")
        self._storage, self._spilling = (number, "disk"), (number, "spill")

    # ---- the link's

    def of_link(self, connections: DataConnections) -> LinkEnvironment:
        return LinkEnvironment(
            connections,
            hand=self._hand,
            send_to_coordinator=partial(self._send_to_coordinator, self._process.number),
            store=self._store,
            spill=self._spill,
            observe=self._observe,
            shut_down=self._shut_down,
        )

    def _hand(self, item: ToTask) -> None:
        self._actions.after("queue", self._to_task, partial(self._dispatcher.offer, self._process, item))

    def _store(self, work: StorageWork) -> None:
        self._process.unstored.append(work)
        if self._store_outside is not None:
            self._store_outside(self._carry_out_next)
        else:
            self._actions.after("disk", self._storage, self._carry_out_here, work)

    def _carry_out_here(self) -> None:
        done = self._carry_out_next()
        done()

    def _carry_out_next(self) -> Callable[[], None]:
        """Does the next storage work. Returns an action for the thread of the world: it delivers the results."""
        process = self._process
        if not process.alive:
            return _nothing
        try:
            return partial(self._stored, tuple(process.storage.carry_out(process.unstored.popleft())))
        except ClonosError as problem:
            return partial(process.fail, problem)

    def _stored(self, events: Sequence[LinkEvent]) -> None:
        for event in events:
            if self._process.alive:
                self._dispatcher.link(self._process.number, event)

    def _spill(self, work: Spilling) -> None:
        self._actions.after("disk", self._spilling, partial(self._carry_out_spilling, work), work)

    def _carry_out_spilling(self, work: Spilling) -> None:
        if self._process.alive:
            for event in self._process.spill.carry_out(work):
                self._dispatcher.link(self._process.number, event)

    def _shut_down(self, reason: str) -> None:
        self._end_process(self._process.number)

    # ---- the task's

    def of_task(self, elapsing_us: Callable[[], int]) -> TaskEnvironment:
        low_priority = AtOnce() if self._store_outside is None else None
        return TaskEnvironment(self._produce, self._call, low_priority, self._now_us, elapsing_us, shares_thread=True)

    def _now_us(self) -> int:
        return self._actions.now_us

    def _produce(self, events: Sequence[FromTask]) -> None:
        """Passes events to the link after a delay. ``Observed`` is passed at once."""
        self._process.produced = events
        for event in events:
            if isinstance(event, Observed):
                self._process.link_executor.handle(event)
            else:
                link = partial(self._dispatcher.link, self._process.number, event)
                self._actions.after("queue", self._from_task, link)

    def produced_before(self, action: Callable[[], None]) -> None:
        """Carries out an action after the link has got everything that the task has produced."""
        if self._process.produced:
            self._actions.after("queue", self._from_task, action)
        else:
            action()

    def _call(self, call: ServiceCall) -> None:
        if self._call_outside is not None:
            self._call_outside(call, partial(self._dispatcher.offer, self._process))
        else:
            self._actions.after_delay("call", partial(self._answer, call))

    def _answer(self, call: ServiceCall) -> None:
        self._dispatcher.offer(self._process, answered(self._process.environment.service, call))
