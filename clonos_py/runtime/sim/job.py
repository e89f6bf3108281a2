"""The simulator as a driver of whole jobs: virtual time, seeded delays and seeded failures."""

from __future__ import annotations

from clonos_py.model.coordinator_events import CheckpointCompleted, CoordinatorEvent, Finished
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import Interrupted, SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.process.contract import Observed
from clonos_py.runtime.callers import http_client
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.crash_notes import watched
from clonos_py.runtime.event_publisher import CoordinatorNews, EventPublisher
from clonos_py.runtime.run_settings import RunResult, policy, raise_for
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.services.registry import ServiceRegistry
from clonos_py.settings.definitions import Settings

_ACTIONS_MAX = 100_000_000


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch | None = None) -> RunResult:
    """Runs a job to its end in virtual time, checkpoints in memory. Raises the ClonosError that ended it, and
    Interrupted after a request to stop: a last checkpoint would be of no use."""
    if settings.kills:
        raise SettingError("the simulator draws its failures from --seed: use --runtime local or ray with --kill")
    publisher: EventPublisher | None = None
    news = CoordinatorNews()
    counters: dict[TaskId, Counters] = {}

    def report(time_us: int, event: CoordinatorEvent) -> None:
        nonlocal publisher
        publisher = publisher or EventPublisher(plan, time_us, listener)
        news.events.append((time_us, event))
        if isinstance(event, CheckpointCompleted | Finished):
            for number, (task, counted) in enumerate(counters.items()):
                news.counters[number] = (task, counted.added_to(ProcessCounters()))
        publisher.publish(news, time_us)
        news.events.clear()
        if stop is not None and stop.requested:
            raise Interrupted

    def observe(time_us: int, task: TaskId, observed: Observed) -> None:
        counters.setdefault(task, Counters()).observe(observed, time_us)

    services = ServiceRegistry({}, http_client)
    with watched():
        outcome = simulate_plan(
            plan,
            settings.seed,
            kills=0,
            policy=policy(settings),
            client=services.client,
            listener=report,
            observer=observe,
            actions_max=_ACTIONS_MAX,
        )
    assert outcome.ended is not None
    raise_for(outcome.ended)
    assert publisher is not None
    return RunResult(plan, publisher.latency)
