"""Carries out missing runs: first the search for the maximum rate of a variant, then its runs at a share of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from clonos_py.bench.checkmate.grid import CheckmateCell, Variant
from clonos_py.bench.checkmate.jobs import VICTIMS, job_of
from clonos_py.bench.checkmate.metrics import Span, measured
from clonos_py.bench.checkmate.simulated import ClusterTerms
from clonos_py.cli.options import resolved
from clonos_py.evaluation.checkmate.dimensions import BY_HASH, CYCLE
from clonos_py.evaluation.checkmate.results import RUN, SEARCH
from clonos_py.evaluation.finished_runs import FinishedRuns
from clonos_py.evaluation.nexmark.report import Recorder, report
from clonos_py.evaluation.nexmark.sustained import Search, ThroughputSearch, search_throughput
from clonos_py.model.errors import ClonosError, SettingError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, Listener
from clonos_py.settings.definitions import Settings

_KILL_SHARE, _KILL_SHARE_CYCLE = 18 / 60, 48 / 60
"""After which share of the measured time a task is killed."""
_UNPACED_EVENTS = {CYCLE: 200_000}
_UNPACED_EVENTS_NEXMARK = 3_000_000
_STANDBYS = {"standbys": 1}


@dataclass(frozen=True)
class RunTerms:
    """The terms that all runs of a results file share. ``given``: settings as on the command line. ``rate``: events per
    second; None: the share that a cell asks for of the maximum, which is searched in trials of ``trial_s``.
    ``cluster``: the simulated cluster, or None for Ray. ``unpaced``: the number of events for runs that read as fast as
    possible and in which no task is killed; None: runs last ``warm_up_s`` plus ``seconds``."""

    warm_up_s: float
    seconds: float
    trial_s: float
    rate: int | None
    given: Mapping[str, Any]
    cluster: ClusterTerms | None = None
    unpaced: int | None = None

    @property
    def searched(self) -> bool:
        """Whether the rate of a run depends on the maximum sustainable throughput."""
        return self.rate is None and self.unpaced is None

    @property
    def plain(self) -> dict[str, Any]:
        """The terms as plain data, in the form in which they are read back from JSON."""
        given = {key: list(value) if isinstance(value, tuple) else value for key, value in self.given.items()}
        return {**asdict(self), "given": given}

    def events(self, rate: float | None) -> float:
        """The number of events of a run at ``rate`` events per second. None: of a run without a fixed rate."""
        if rate is None:
            assert self.unpaced is not None
            return self.unpaced
        return rate * (self.warm_up_s + self.seconds)

    def settings(self, variant: Variant, **more: Any) -> Settings:
        """The settings of a run. Those of the variant take precedence over the given ones, and ``more`` over both.
        Raises SettingError."""
        standbys = {} if "standbys" in self.given else _STANDBYS
        return resolved(standbys, {**self.given, **variant.settings, **more})

    def kill(self, variant: Variant) -> str:
        """The kill setting of a run. The time of the kill counts from the deployment."""
        share = _KILL_SHARE_CYCLE if variant.query == CYCLE else _KILL_SHARE
        return f"{VICTIMS[variant.query]}@{round((self.warm_up_s + share * self.seconds) * 1e6)}us"

    def run(
        self,
        query: str,
        events: float,
        rate: float | None,
        settings: Settings,
        listener: Listener,
        skew: int = 0,
        keys: str = BY_HASH,
    ) -> PhysicalPlan:
        """Runs a query over ``events`` events (see ``jobs.job_of``). Raises the ClonosError that ended the job."""
        weight = self.cluster.rows_per_row if self.cluster else 1
        slower = None if rate is None else rate / weight
        job = job_of(query, max(round(events / weight), 1), slower, settings, skew, keys)
        if self.cluster is not None:
            return self.cluster.run(job, settings, listener)
        from clonos_py.runtime.launch import run_job

        return run_job(job, settings, listener).plan


# ---- one run


def run_cell(cell: CheckmateCell, rate: float | None, terms: RunTerms) -> dict[str, Any]:
    """Makes a run and returns its entry for the results file. ``rate``: events per second; None: as fast as possible
    (see ``RunTerms``). The seed of each repetition decides when tasks take snapshots. Raises ClonosError."""
    variant = cell.variant
    kills = {"kills": (terms.kill(variant),)} if variant.kills and rate is not None else {}
    seed = terms.settings(variant).seed + cell.run - 1
    settings = terms.settings(variant, **kills, seed=seed)
    events: list[tuple[int, Event]] = []
    count = terms.events(rate)
    plan = terms.run(
        variant.query, count, rate, settings, lambda at_us, event: events.append((at_us, event)), cell.skew, cell.keys
    )
    shown = {key: value for key, value, _ in settings.shown()}
    metrics = measured(events, plan, Span(terms.warm_up_s, terms.seconds))
    if terms.cluster is not None:
        metrics = terms.cluster.weighed(metrics)
    return {"rate": rate, "tasks": len(plan.tasks), "settings": shown, "metrics": metrics}


# ---- the maximum sustainable throughput


def search_rate(variant: Variant, terms: RunTerms, on_progress: Callable[[str], None]) -> dict[str, Any]:
    """Searches for the maximum sustainable throughput of a variant. Returns the entry for the results file. Raises
    ClonosError."""
    settings = terms.settings(variant)

    def on_trial(found: Search) -> None:
        trial = found.trials[-1]
        on_progress(f"{variant}: {trial.rate:,.0f} events/s {'sustained' if trial.sustained else 'too much'}")

    found, _ = search_throughput(
        ThroughputSearch(terms.trial_s),
        lambda: _unpaced(variant, settings, terms),
        lambda rate: _report(variant, rate * terms.trial_s, rate, settings, terms),
        on_trial,
    )
    if not found.low:
        raise SettingError(f"{variant}: none of {len(found.trials)} rates was sustained; give one with --rate")
    return {"events_per_s": found.low, "trials": [asdict(trial) for trial in found.trials]}


def _unpaced(variant: Variant, settings: Settings, terms: RunTerms) -> float:
    events = _UNPACED_EVENTS.get(variant.query, _UNPACED_EVENTS_NEXMARK)
    made = _report(variant, events, None, settings, terms)
    weight = terms.cluster.rows_per_row if terms.cluster else 1
    steady = float(made["throughput"]["steady_events_per_s"]) * weight
    return steady or events / max(made["seconds"] - made["deployed_s"], 0.1)


def _report(variant: Variant, events: float, rate: float | None, settings: Settings, terms: RunTerms) -> dict[str, Any]:
    recorder = Recorder()
    plan = terms.run(variant.query, events, rate, settings, recorder)
    return report(recorder, plan, {})


# ---- all that is missing


@dataclass
class MissingRuns:
    """The runs of ``cells`` that ``results`` lacks, and the searches that these runs need."""

    cells: list[CheckmateCell]
    terms: RunTerms
    results: FinishedRuns
    _failed_searches: dict[Variant, ClonosError] = field(default_factory=dict)
    """Searches that have failed, with their errors. They are not repeated for each run of the variant."""

    @property
    def missing(self) -> list[CheckmateCell]:
        return [cell for cell in self.cells if not self.results.finished(RUN, cell.key)]

    @property
    def searches(self) -> list[Variant]:
        """The variants whose maximum rate is still to be searched."""
        if not self.terms.searched:
            return []
        variants = dict.fromkeys(cell.variant for cell in self.missing)
        return [variant for variant in variants if not self.results.finished(SEARCH, asdict(variant))]

    def perform(self, cell: CheckmateCell, on_progress: Callable[[str], None]) -> str:
        """Makes the search if needed, and the run. Stores both results, or the error that ended the job. Returns a line
        that describes the outcome."""
        found = self.results.attempt(RUN, cell.key, lambda: run_cell(cell, self._rate(cell, on_progress), self.terms))
        return f"{cell}: {found['error'] if 'error' in found else outcome(found)}"

    def _rate(self, cell: CheckmateCell, on_progress: Callable[[str], None]) -> float | None:
        if not self.terms.searched:
            return self.terms.rate
        known = self.results.of(SEARCH, asdict(cell.variant)) or self._search(cell.variant, on_progress)
        return float(known["events_per_s"]) * (cell.load or 100) / 100

    def _search(self, variant: Variant, on_progress: Callable[[str], None]) -> Mapping[str, Any]:
        if variant in self._failed_searches:
            raise self._failed_searches[variant]
        try:
            found = search_rate(variant, self.terms, on_progress)
        except ClonosError as error:
            self._failed_searches[variant] = error
            raise
        self.results.keep(SEARCH, asdict(variant), found)
        return found


def outcome(found: Mapping[str, Any]) -> str:
    """The outcome of a run in a few words."""
    metrics = found["metrics"]
    rate = metrics["throughput_events_per_s"] if found["rate"] is None else found["rate"]
    parts = ["too short to measure its throughput" if rate is None else f"{rate:,.0f} events/s"]
    if metrics["latency_undisturbed_ms"]["p50"] is not None:
        parts.append(f"p50 {metrics['latency_undisturbed_ms']['p50']:,.0f} ms")
    failure = metrics["failure"]
    if failure is not None:
        for step in ("restart", "recovery"):
            ms = failure[f"{step}_ms"]
            parts.append(f"{step} not seen" if ms is None else f"{step} {ms:,.0f} ms")
        parts.append(f"{failure['invalid']} of {failure['durable']} snapshots invalid")
    return ", ".join(parts)
