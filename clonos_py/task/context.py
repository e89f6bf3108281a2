"""The context that a task gives its operators (``OperatorContext``), and what the driver must provide for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from clonos_py.causal.gate import Gate
from clonos_py.model.calls import ServiceCall
from clonos_py.model.ids import TaskId
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import MetricDefinition, UserMetric, after
from clonos_py.task.calls import Calls
from clonos_py.task.timers import Timers


class OperatorEnvironment(Protocol):
    """Synchronous calls out of the task, made through the gate. The driver implements them."""

    def now_us(self) -> int:
        """The time of day, microseconds UTC. The clock may be set back or forward."""
        ...

    def seed(self) -> int:
        """64 random bits."""
        ...

    def service(self, name: str) -> Any:
        """The client of a service. Raises KeyError for an unknown service."""
        ...

    def keep(self, epoch: int, content: bytes) -> str:
        """Makes a large answer of this epoch durable, and returns its name."""
        ...

    def kept(self, name: str) -> bytes:
        """The content that ``keep`` stored under this name."""
        ...


class TaskContext:
    """The state that all operator contexts of a task share."""

    def __init__(
        self,
        task: TaskId,
        parallelism: int,
        groups: range,
        key_groups: int,
        gate: Gate,
        environment: OperatorEnvironment,
    ) -> None:
        self.task, self.parallelism, self.groups, self.key_groups = task, parallelism, groups, key_groups
        self.gate, self.environment = gate, environment
        self.timers = Timers(environment.now_us)
        self.calls = Calls()
        self.working: set[int] = set()
        """The operators that hold unfinished rows."""
        self.full: set[int] = set()
        """The operators that accept no more rows for now."""
        self.frame: tuple[int, int] = (-1, 0)
        self.numbering = ""
        self.may_repeat = False
        """See OperatorContext."""
        self.counts: dict[str, int] = {}
        self.metrics: dict[str, UserMetric] = {}
        self.counted = False
        """Whether counts or metrics have changed since they were read."""
        self.silent = False
        """Whether what operators emit and count, and the timers that they set, are dropped: in a rebuild."""
        self._random: random.Random | None = None

    def open_epoch(self) -> None:
        """Begins an epoch: the next random number draws a new seed, the next time request reads the clock."""
        self._random = None
        self.gate.reset_time()

    @property
    def random(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(self.gate.seed(self.environment.seed))
        return self._random

    def count(self, metric: str, amount: int) -> None:
        if self.silent:
            return
        self.counts[metric] = self.counts.get(metric, 0) + amount
        self.counted = True

    def measure(self, metric: str, definition: MetricDefinition, amount: float) -> None:
        if self.silent:
            return
        self.metrics[metric] = after(self.metrics.get(metric), definition, amount)
        self.counted = True


class _Clock:
    def __init__(self, gate: Gate, live: Callable[[], int]) -> None:
        self._gate, self._live = gate, live

    def now(self) -> int:
        return self._gate.now(self._live)


class OperatorView:
    """One operator's view of its task."""

    def __init__(self, shared: TaskContext, number: int, operator: str) -> None:
        self._shared, self._number, self._operator = shared, number, operator
        self._clock = _Clock(shared.gate, shared.environment.now_us)
        self.watermark = MIN_TIME

    @property
    def task(self) -> TaskId:
        return self._shared.task

    @property
    def operator(self) -> str:
        return self._operator

    @property
    def parallelism(self) -> int:
        return self._shared.parallelism

    @property
    def groups(self) -> range:
        return self._shared.groups

    @property
    def key_groups(self) -> int:
        return self._shared.key_groups

    @property
    def frame(self) -> tuple[int, int]:
        return self._shared.frame

    @property
    def numbering(self) -> str:
        return self._shared.numbering

    @property
    def may_repeat(self) -> bool:
        return self._shared.may_repeat

    @property
    def time(self) -> _Clock:
        return self._clock

    @property
    def random(self) -> random.Random:
        return self._shared.random

    @property
    def gate(self) -> Gate:
        return self._shared.gate

    def service(self, name: str) -> Any:
        return self._shared.environment.service(name)

    def set_timer(self, at: int) -> None:
        if self._shared.silent:
            return
        self._shared.timers.set(self._number, at, self._shared.gate.last_answered_us)

    def clear_timer(self, at: int) -> None:
        self._shared.timers.remove(self._number, at)

    def start_call(self, number: int, service: str, question: Any) -> None:
        self._shared.calls.begin(ServiceCall(self._number, number, service, question))

    def cancel_call(self, number: int) -> None:
        self._shared.calls.cancel(self._number, number)

    def hold(self, any_: bool, enough: bool) -> None:
        (self._shared.working.add if any_ else self._shared.working.discard)(self._number)
        (self._shared.full.add if enough else self._shared.full.discard)(self._number)

    def count(self, metric: str, amount: int) -> None:
        self._shared.count(f"{self._operator}.{metric}", amount)

    def measure(self, definition: MetricDefinition, amount: float) -> None:
        self._shared.measure(f"{self._operator}.{definition.name}", definition, amount)
