"""What every driver derives from the settings of a run, and the result that it returns."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from clonos_py.job.events import AutoInterval, EndJob, JobPolicy
from clonos_py.job.state_mapping import StateMapping
from clonos_py.model import errors
from clonos_py.model.errors import SettingError, shows_tracebacks
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.retention import Spill
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.process.contract import ChannelLimits
from clonos_py.settings.definitions import CallTimes, Guarantee, Preference, Settings


@dataclass(frozen=True)
class RunResult:
    """What a run returns besides its output. ``latency``: of the markers that reached sinks. ``stopped``: the run was
    stopped with a last checkpoint, before its sources ended."""

    plan: PhysicalPlan
    latency: LatencyHistogram
    stopped: bool = False

    def __repr__(self) -> str:
        return f"<RunResult of {self.plan.job!r}: {'stopped' if self.stopped else 'finished'}>"


def policy(settings: Settings, lineage: str = "") -> JobPolicy:
    """The coordinator's policy. ``lineage``: see ``JobPolicy``."""
    return JobPolicy(
        checkpoint_interval_us=_first_interval_us(settings),
        auto_interval=_auto_interval(settings) if settings.finds_interval else None,
        staggered=settings.checkpoint_calls is CallTimes.STAGGERED,
        checkpoint_timeout_us=settings.checkpoint_timeout_us,
        heartbeat_us=min(settings.heartbeat_timeout_us // 8, 250_000),
        heartbeat_timeout_us=settings.heartbeat_timeout_us,
        connection_timeout_us=settings.connection_timeout_us,
        start_timeout_us=settings.start_timeout_us,
        deduplicate=settings.guarantee is Guarantee.EXACTLY_ONCE,
        availability=settings.beyond_sharing_depth is Preference.AVAILABILITY,
        replay=settings.guarantee is not Guarantee.AT_MOST_ONCE,
        state_mapping=state_mapping(settings),
        lineage=lineage,
    )


_FIRST_INTERVAL_US = 5_000_000
"""The interval until the cost of a checkpoint is known, if a job finds its interval itself."""


def _first_interval_us(settings: Settings) -> int:
    if not settings.finds_interval:
        return settings.checkpoint_interval_us
    return min(max(_FIRST_INTERVAL_US, settings.checkpoint_interval_min_us), settings.checkpoint_interval_max_us)


def _auto_interval(settings: Settings) -> AutoInterval:
    return AutoInterval(
        settings.checkpoint_interval_min_us,
        settings.checkpoint_interval_max_us,
        settings.mtbf_us,
        settings.in_flight_budget_bytes if settings.spill is Spill.IN_MEMORY else None,
    )


def state_mapping(settings: Settings) -> StateMapping:
    """What becomes of state that maps to no operator by its name."""
    return StateMapping(settings.drop_state, {rename.old: rename.new for rename in settings.renames})


def drawn_lineage() -> str:
    """A random name for a new lineage, unique among runs."""
    return secrets.token_hex(8)


def limits(settings: Settings, cuts_early: bool = False) -> ChannelLimits:
    """How much a link may retain, and where. ``cuts_early``: see ``ChannelLimits``."""
    return ChannelLimits(
        budget_bytes=settings.in_flight_budget_bytes,
        policy=settings.spill,
        spill_bytes=settings.spill_threshold_bytes,
        cuts_early=cuts_early,
    )


def kills(plan: PhysicalPlan, settings: Settings) -> list[tuple[int, TaskId]]:
    """Ordered failures (``--kill``) as (microseconds after deployment, task). An operator stands for the vertex that it
    was chained into. Raises SettingError if there is no such task."""
    vertex_of = {vertex.name: vertex for vertex in plan.vertices}
    vertex_of.update({o.name: vertex for vertex in plan.vertices for o in vertex.operators})
    vertex_of.update({vertex.source.name: vertex for vertex in plan.vertices if vertex.source})
    ordered_kills = []
    for kill in settings.kills:
        vertex = vertex_of.get(kill.operator)
        if vertex is None or kill.index >= vertex.parallelism:
            there = ", ".join(f"{v.name}[0..{v.parallelism - 1}]" for v in plan.vertices)
            raise SettingError(f"--kill {kill}: there is no such task; there are {there}")
        ordered_kills.append((kill.at_us, TaskId(vertex.name, kill.index)))
    return ordered_kills


def raise_for(end: EndJob, checkpoints: str | None = None) -> None:
    """Raises the ClonosError that ended a job, if one did. ``checkpoints``: the place that the user has named for
    checkpoints; without it, they are gone with the run."""
    if end.error is not None:
        error = errors.error_type(end.error)(end.message)
        error.traceback = end.traceback
        error.leaves_checkpoint = checkpoints is not None and end.checkpoint > 0
        if end.traceback and shows_tracebacks():
            error.add_note(end.traceback)
        raise error
