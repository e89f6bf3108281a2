"""Runs a scenario under all checks, from the deployment to the end, where its witnesses must agree."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, JobPolicy
from clonos_py.job.preparation import state_ahead
from clonos_py.job.state_mapping import at_the_end
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.retention import Spill
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.sim.bounds import Bounds
from clonos_py.runtime.sim.chaos import SLOWER_MAX, Chaos, FaultKind
from clonos_py.runtime.sim.deaths_ahead import DeathsAhead
from clonos_py.runtime.sim.generator import Range, Scenario, generate
from clonos_py.runtime.sim.harsh_environment import HarshEnvironment
from clonos_py.runtime.sim.harsh_world import CRASHED, HarshWorld
from clonos_py.runtime.sim.histories import HistoryLedger, disagreements, missing_or_doubled
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.sim.records import record_problems
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.spill import Disk
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.runtime.sim.story import words
from clonos_py.runtime.sim.violation import Violation
from clonos_py.runtime.world.world import WorldSettings

ACTIONS_MAX = 150_000
_RESTARTS_MAX = 16
_PREPARED = 0.7
"""The share of runs at another parallelism whose processes load state before."""
_DISK_ERRORS = ("CheckpointError", "CapacityError")
_CONNECTION_TIMEOUT_US = 1_600_000
"""Longer than the two heartbeats that may count of a coordinator's standstill: it causes no connection timeout."""
_MANIFEST_TIMEOUTS_US = 900_000, 8_000_000
"""The least and the most. A manifest that is never written must end the job before nothing has happened for 10 s."""
_DELTAS_MAX = 3
"""So few delta manifests in a row that every run has several whole manifests."""
_SPILL_BYTES = 500
"""The size of some frames of a few rows."""


@dataclass
class ScenarioResult:
    """The result of a run. ``problems`` is empty if nothing is wrong."""

    scenario: Scenario
    problems: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    faults: Counter[FaultKind] = field(default_factory=Counter)
    rollbacks: int = 0
    restarts: int = 0
    actions: int = 0


def run_seed(seed: int, range_: Range = Range()) -> ScenarioResult:  # noqa: B008 - frozen
    return run_scenario(generate(seed, range_))


def run_scenario(scenario: Scenario) -> ScenarioResult:
    """Runs a scenario. It decides everything: the same scenario gives the same story."""
    return _Run(scenario).run()


class _Run:
    """The job of a scenario, its storage and its ledger, which outlive coordinators."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._result = scenario, ScenarioResult(scenario)
        conditions = scenario.conditions
        self._ledger = HistoryLedger()
        self._topology = scenario.topology
        self._plan = self._topology.plan(self._ledger)
        self._store = MemoryStore(self._plan.job, _DELTAS_MAX)
        self._time = VirtualTime(random.Random(2 * scenario.seed), dict(conditions.slowness))
        self._answers = random.Random(2 * scenario.seed + 1)
        self._start_us = self._time.now_us()
        self._run = ""
        self._ahead: Manifest | None = None
        """What the processes of the next run load before it is deployed."""
        self._deaths_ahead: DeathsAhead | None = None
        self._disk = Disk()
        self._bounds, self._watch = self._checkers()
        self._ledger.watch = self._watch.commits
        total = sum(scenario.topology.rows_of.values())
        self._chaos = Chaos(
            scenario.faults,
            lambda: self._ledger.rows_read / total,
            self._time,
            self._store,
            self._disk if conditions.spill is not Spill.IN_MEMORY else None,
            lambda what: self._note(self._time.now_us(), what),
        )

    def _checkers(self) -> tuple[Bounds, InvariantChecker]:
        """The checks of the plan."""
        topology, conditions = self._topology, self._scenario.conditions
        bounds = Bounds(
            self._plan,
            topology.partitions,
            topology.last_ids,
            self._ledger,
            conditions.window,
            conditions.linger_us,
            dict(conditions.slowness),
        )
        return bounds, InvariantChecker(self._plan, self._store.latest, bounds, conditions.availability)

    def run(self) -> ScenarioResult:
        result, topology = self._result, self._scenario.topology
        try:
            self._run_to_the_end()
        except Violation as problem:
            result.problems.append(str(problem))
        except Exception as problem:  # noqa: BLE001 - a failed assertion of a machine is a finding, too
            place = traceback.extract_tb(problem.__traceback__)[-1]
            result.problems.append(f"{type(problem).__name__}: {problem} ({place.filename}:{place.lineno})")
        self._store.be_silent(0)
        if not result.problems:
            once = self._exactly_once and not self._watch.restarts_without_log
            result.problems += missing_or_doubled(self._ledger, topology.paths, topology.rows_of, once, topology.rounds)
            if once:
                result.problems += disagreements(self._ledger, topology.numbered)
            restarts = not self._exactly_once or self._scenario.conditions.availability
            result.problems += record_problems(self._store, self._plan, may_restart_without_log=restarts)
        result.faults, result.rollbacks = self._chaos.done, self._watch.rollbacks
        return result

    @property
    def _exactly_once(self) -> bool:
        return self._plan.sharing_depth != 0 or self._plan.rollback

    def _run_to_the_end(self) -> None:
        """Runs the job until it finishes. After a crash, a failed disk or a stop it is run again from its last
        checkpoint."""
        for number in range(_RESTARTS_MAX):
            settings = self._settings(self._lineage(number))
            ahead, self._ahead = self._ahead, None
            world = HarshWorld(
                self._plan,
                self._store,
                self._time,
                lambda task: HarshEnvironment(self._time.now_us, self._answers, self._store, task),
                settings,
                self._listen,
                self._harm,
                self._watch,
                self._bounds,
            )
            try:
                ended = world.run(state_ahead(ahead, self._plan, settings.policy))
            finally:
                self._result.actions += world.actions_done
            if ended.error is None and not ended.stopped:
                self._watch.finished()
                return
            how = "stopped" if ended.stopped else f"ended with {ended.error}: {ended.message}"
            self._note(self._time.now_us(), how)
            if not self._expected(ended):
                raise Violation(f"ended with {ended.error}: {ended.message}")
            self._result.restarts += 1
            self._chaos.restarted()
            self._rescale()
            self._watch.restarted()
            self._bounds.restarted()
        raise Violation(f"has not finished after {_RESTARTS_MAX} restarts")

    def _rescale(self) -> None:
        """The run has stopped or was lost: it goes on at another parallelism if it is to. It does so once."""
        topology, last = self._scenario.topology, self._store.latest()
        possible = self._scenario.conditions.rescales and topology.can_rescale and self._topology is topology
        if not possible or last is None or at_the_end(last) or self._timers_may_move():
            return
        self._topology = topology.rescaled(random.Random(f"tasks of {self._scenario.seed}"))
        self._note(self._time.now_us(), f"goes on at another parallelism: {'; '.join(self._topology.lines())}")
        former, self._plan = self._watch, self._topology.plan(self._ledger)
        self._bounds, self._watch = self._checkers()
        self._watch.follow(former, last.checkpoint)
        self._ledger.watch = self._watch.commits
        self._prepare()

    def _prepare(self) -> None:
        """The processes of the new tasks may load a checkpoint of the former ones before these have taken their last.
        Storage has no more than the last two."""
        drawn = random.Random(f"preparation of {self._scenario.seed}")
        if drawn.random() < _PREPARED and not self._plan.stores_logs:
            *_, before, last = (None, *self._store.manifests())
            self._ahead = drawn.choice([last, before or last, before or last])
            self._deaths_ahead = DeathsAhead(drawn, lambda what: self._note(self._time.now_us(), what))
            self._note(self._time.now_us(), f"processes load checkpoint {self._ahead.checkpoint} ahead")

    def _harm(self, world: HarshWorld) -> None:
        if world.prepares and self._deaths_ahead is not None:
            self._deaths_ahead(world)
        self._chaos(world)

    def _timers_may_move(self) -> bool:
        """Whether timers may fire much later at another parallelism: operators set them anew for a time of day, and
        that clock may have been set since."""
        set_clocks = any(fault.kind is FaultKind.CLOCK for fault in self._scenario.faults)
        return set_clocks and any(StepKind.TIMERS in node.steps for node in self._scenario.topology.nodes)

    def _expected(self, ended: EndJob) -> bool:
        disk = ended.error in _DISK_ERRORS and self._chaos.done[FaultKind.DISK] > 0
        return ended.stopped or ended.error == CRASHED or disk

    def _lineage(self, number: int) -> str:
        """The name of a run of the job. Where all tasks had ended, another run would begin with new numbers of frames
        and snapshots, which the checks do not follow: the same run goes on."""
        latest = self._store.latest()
        if latest is None or not at_the_end(latest):
            self._run = f"seed-{self._scenario.seed}-{number}"
        return self._run

    def _settings(self, lineage: str) -> WorldSettings:
        """The settings of the world. Heartbeats cost actions: they are frequent only if a process may hang."""
        conditions = self._scenario.conditions
        patient = all(fault.kind is not FaultKind.FREEZE for fault in self._scenario.faults)
        least_us, most_us = _MANIFEST_TIMEOUTS_US
        policy = JobPolicy(
            checkpoint_interval_us=conditions.checkpoint_interval_us,
            staggered=conditions.staggered,
            heartbeat_us=500_000 if patient else 30_000,
            heartbeat_timeout_us=2_000_000 if patient else 150_000,
            manifest_timeout_us=min(max(least_us, int(SLOWER_MAX * self._time.longest_us("disk"))), most_us),
            connection_timeout_us=_CONNECTION_TIMEOUT_US,
            rollbacks_max=100,
            deduplicate=self._exactly_once,
            availability=conditions.availability,
            lineage=lineage,
        )
        limits = ChannelLimits(
            window=conditions.window,
            policy=conditions.spill,
            spill_bytes=_SPILL_BYTES,
            queue_us=conditions.queue_us,
            cuts_early=conditions.cuts_early,
        )
        return WorldSettings(
            policy,
            limits,
            conditions.linger_us,
            events_max=ACTIONS_MAX,
            shelf=self._disk.shelf,
            standbys_per_process=conditions.standbys_per_process,
            standby_patience_us=conditions.standby_patience_us,
        )

    def _listen(self, time_us: int, event: CoordinatorEvent) -> None:
        self._note(time_us, words(event))

    def _note(self, time_us: int, what: str) -> None:
        self._result.story.append(f"{(time_us - self._start_us) / 1e3:10.3f} ms  {' '.join(what.split())}")
