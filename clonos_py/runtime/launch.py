"""Plans a job and runs it on the driver that the settings name."""

from __future__ import annotations

from clonos_py.columns.kernels.library import missing
from clonos_py.dsl.job import Job
from clonos_py.model.errors import ClonosError, GraphError, one_line
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener, PlanWarning, no_listener
from clonos_py.plan.logical import EnrichRows, ReadSource, WriteSink
from clonos_py.plan.physical import plan, unreadable_sinks
from clonos_py.plan.row_identity import row_identities
from clonos_py.runtime.garbage import kept
from clonos_py.runtime.run_control import Ended, controlled
from clonos_py.runtime.run_settings import RunResult
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.submitted import on_its_cluster
from clonos_py.runtime.tracing import traced
from clonos_py.runtime.web.server import served
from clonos_py.settings.definitions import Runtime, Settings
from clonos_py.settings.resolution import check_run


def planned(job: Job, settings: Settings) -> PhysicalPlan:
    """The plan of a run, whose sources have looked up what they read, and whose sinks have checked what they write to.
    Raises GraphError or SettingError, and SourceError or SinkError for what was found."""
    check_run(settings)
    physical = plan(job, settings)
    for complaint in unreadable_sinks(job.graph(), settings):
        raise GraphError(complaint)
    graph = job.graph()
    for source, columns in row_identities(graph).items():
        work = graph.by_id[source].work
        assert isinstance(work, ReadSource)
        work.definition.identified_by(columns)
    for node in graph.nodes:
        if isinstance(node.work, ReadSource | EnrichRows):
            node.work.definition.resolve()
        elif isinstance(node.work, WriteSink):
            node.work.definition.resolve(graph.schema(node.inputs[0]))
    return physical


def run_job(
    job: Job, settings: Settings, listener: Listener = no_listener, stop: StopSwitch | None = None
) -> RunResult:
    """Plans and runs a job until its sources end or ``stop`` is requested. Raises GraphError or SettingError before
    anything starts, later the error that ended the job, and KeyboardInterrupt when the run was interrupted."""
    settings = on_its_cluster(settings)
    with kept(last=True):
        physical = planned(job, settings)
        match settings.runtime:
            case Runtime.RAY:
                from clonos_py.runtime.ray.run import run
            case Runtime.LOCAL:
                from clonos_py.runtime.local.run import run
            case Runtime.SIM:
                from clonos_py.runtime.sim.job import run
    stop = stop or StopSwitch()
    with (
        controlled(physical.job, settings.address, stop, settings.namespace) as control,
        traced(physical, settings, listener) as traced_listener,
        served(physical, settings, traced_listener, stop) as served_listener,
    ):
        for warning in (*physical.warnings, *([kernels] if (kernels := missing()) else [])):
            served_listener(0, PlanWarning(reason=warning))
        try:
            result = run(physical, settings, served_listener, stop)
        except (ClonosError, KeyboardInterrupt) as error:
            control.ended = Ended(error=one_line(error) or "it was interrupted")
            raise
        control.ended = Ended(result.stopped)
        return result
