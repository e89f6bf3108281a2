"""Generated jobs under generated failures: no rule is ever broken, and the generator covers what it should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from clonos_py.model.errors import SettingError
from clonos_py.model.plan import Partitioning
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.retention import Spill
from clonos_py.runtime.sim.chaos import FaultKind
from clonos_py.runtime.sim.generator import FAMILY, RECOVERIES, ROLLBACK, Range, generate
from clonos_py.runtime.sim.scenario import ScenarioResult, run_scenario, run_seed
from clonos_py.runtime.sim.shrinking import shrink
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.settings.protocols import CONTINUOUS, PROTOCOLS
from tests.chunks import chunks
from tests.sim.planted import logs
from tests.sim.small_first import small_first

SIZE, SIZE_MIXED = 25, 6
"""Eight in ten of the planted bugs show in the first 25 seeds of their range, and nine in ten in the first 75; each is
planted with a seed that shows it."""


def described(verdict: ScenarioResult) -> str:
    story = "\n  ".join([*verdict.scenario.topology.lines(), *verdict.story])
    again = f"clonos sim --start {verdict.scenario.seed} --seeds 1"
    return f"{'; '.join(verdict.problems)}; again: {again}\n  {story}"


@pytest.mark.parametrize("seeds", chunks(500, SIZE, always=SIZE))
def test_no_schedule_of_failures_breaks_a_rule(seeds: range) -> None:
    done: Counter[FaultKind] = Counter()
    for seed in seeds:
        verdict = run_seed(seed)
        assert not verdict.problems, described(verdict)
        if verdict.scenario.topology.sharing_depth < 0:
            assert not verdict.rollbacks, described(verdict)
        done += verdict.faults
    assert done.total() > SIZE, "too little happened: the test proves little"


@pytest.mark.parametrize("seeds", chunks(200, SIZE_MIXED, always=SIZE_MIXED))
def test_no_schedule_of_failures_breaks_a_rule_under_any_protocol_and_recovery(seeds: range) -> None:
    """The only jobs with other protocols that promise no more than at-least-once."""
    for seed in seeds:
        verdict = run_seed(seed, Range(protocol=None))
        assert not verdict.problems, f"{described(verdict)} --protocol mixed"


def test_every_kind_of_failure_has_a_name_on_the_command_line() -> None:
    assert set(FAMILY) == set(FaultKind)


KINDS = [(recovery, cycles) for recovery in RECOVERIES for cycles in (False, True)]
EACH, ALWAYS = 40, range(18, 20)
"""Seeds of a protocol for each kind of its jobs, and places by size of those for every run: jobs large enough for
failures to cost something."""


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        pytest.param(protocol, kind, id=f"{protocol}, {recovery} with{'' if cycles else 'out'} loops")
        for protocol in PROTOCOLS
        for kind, (recovery, cycles) in enumerate(KINDS)
        if protocol.rolls_back or recovery != ROLLBACK
    ],
)
@pytest.mark.parametrize(
    "places",
    [ALWAYS, pytest.param([place for place in range(EACH) if place not in ALWAYS], marks=pytest.mark.thorough)],
    ids=["some", "others"],
)
def test_no_schedule_of_failures_breaks_a_rule_under(
    protocol: ProtocolProperties, kind: int, places: Sequence[int]
) -> None:
    """Tasks that take snapshots alone go back one by one; under barriers all go back together."""
    recovery, cycles = KINDS[kind]
    together = recovery == ROLLBACK and protocol.coordinated
    again = f"--protocol {protocol} --recovery {recovery}{' --cycles' * cycles}"
    rollbacks = faults = 0
    range_ = Range(protocol=protocol, cycles=cycles, recovery=recovery)
    scenarios = small_first(range(kind * EACH, (kind + 1) * EACH), range_)
    for place in places:
        verdict = run_scenario(scenarios[place])
        assert not verdict.problems, f"{described(verdict)} {again}"
        if not protocol.coordinated or verdict.scenario.topology.sharing_depth < 0:
            assert not verdict.rollbacks, f"{described(verdict)} {again}"
        rollbacks, faults = rollbacks + verdict.rollbacks, faults + verdict.faults.total()
    assert (rollbacks if together else faults) > len(places) / 2, "too little happened: the test proves little"


@pytest.mark.parametrize(
    ("recovery", "protocol"),
    [
        (recovery, protocol)
        for recovery in RECOVERIES
        for protocol in (*PROTOCOLS, None)
        if protocol is None or protocol.rolls_back or recovery != ROLLBACK
    ],
)
def test_generated_jobs_have_the_chosen_recovery_and_a_depth_that_fits_it(
    recovery: str, protocol: ProtocolProperties | None
) -> None:
    topologies = [generate(seed, Range(protocol=protocol, recovery=recovery)).topology for seed in range(100)]
    assert {topology.rollback for topology in topologies} == {recovery == ROLLBACK}
    depths = {topology.sharing_depth for topology in topologies}
    if recovery == ROLLBACK:
        assert depths == {0}
    else:
        assert depths == ({-1} if protocol and not protocol.coordinated else {-1, 1, 2, 3})


def test_every_kind_of_loop_is_generated() -> None:
    topologies = [generate(seed, Range(cycles=True)).topology for seed in range(200)]
    heads = [(t, n, node) for t in topologies for n, node in enumerate(t.nodes) if node.feedback is not None]
    assert len(heads) == len(topologies)
    backs = [(number, node.feedback.source) for _, number, node in heads if node.feedback is not None]
    assert {head == tail for head, tail in backs} == {True, False}, "of one vertex, and of several"
    assert {node.feedback.partitioning for _, _, node in heads if node.feedback} == {
        Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE,
    }  # fmt: skip
    assert {topology.sharing_depth for topology in topologies} == {-1, 0}
    bodies = [range(head, tail + 1) for head, tail in backs]
    entered = [
        any(feed.source not in body for n in body[1:] for feed in topology.nodes[n].feeds)
        for (topology, _, _), body in zip(heads, bodies, strict=True)
    ]
    assert any(entered), "rows enter beside the head"


def test_every_kind_of_failure_happens() -> None:
    done: Counter[FaultKind] = Counter()
    for scenario in small_first(range(120)):
        if any(not done[fault.kind] for fault in scenario.faults):
            done += run_scenario(scenario).faults
        if all(done[kind] for kind in FaultKind):
            return
    pytest.fail(f"of {', '.join(map(str, FaultKind))} there were only {done}")


def test_every_kind_of_job_is_generated() -> None:
    topologies = [generate(seed).topology for seed in range(400)]
    nodes = [node for topology in topologies for node in topology.nodes]
    feeds = [feed for node in nodes for feed in node.feeds]
    assert {kind for node in nodes for kind in node.steps} == set(StepKind) - {StepKind.ROUTE, StepKind.PARTS}
    assert {feed.partitioning for feed in feeds} == {Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE}
    assert {node.parallelism for node in nodes} == {1, 2, 3}
    assert {len(node.feeds) for node in nodes} == {0, 1, 2}
    assert {sum(not node.feeds for node in topology.nodes) for topology in topologies} == {1, 2, 3}
    assert any(len(paths) > 1 for topology in topologies for paths in topology.paths.values())
    assert max(topology.tasks for topology in topologies) > 15
    assert {topology.sharing_depth for topology in topologies} == {-1, 0, 1, 2, 3}
    assert {topology.rollback for topology in topologies if topology.sharing_depth == 0} == {True, False}
    assert not any(topology.rollback for topology in topologies if topology.sharing_depth != 0)
    assert len({topology.time_granularity_us for topology in topologies}) > 2
    assert any(node.steps.count(StepKind.TIMERS) > 1 for node in nodes), "timers of two operators for the same time"
    assert {node.causal for node in nodes} == {False, True}
    assert {topology.regenerates for topology in topologies} == {False, True}


def test_some_sources_fall_silent_together_before_they_end_also_in_a_run_that_resumes() -> None:
    made = [generate(seed) for seed in range(400)]
    silent = [one for one in made if any(node.volume and node.volume.silent_us for node in one.topology.nodes)]
    assert 20 < len(silent) < 80
    stopped = 0
    for one in silent:
        volumes = [node.volume for node in one.topology.nodes if node.volume]
        assert all(volume.silent_us and volume.idle_us for volume in volumes), "no source holds the others back"
        stopped += any(fault.kind is FaultKind.STOP and fault.at == 1.0 for fault in one.faults)
    assert 0 < stopped < len(silent)
    assert any(StepKind.WINDOWS in node.steps for one in silent for node in one.topology.nodes)
    volumes = [node.volume for one in silent for node in one.topology.nodes if node.volume]
    assert any(volume.partitions > 1 for volume in volumes)
    assert any(node.volume and node.parallelism > 1 for one in silent for node in one.topology.nodes)


def test_most_jobs_save_state_in_parts_under_a_protocol_that_can() -> None:
    topologies = [generate(seed, Range(protocol=CONTINUOUS)).topology for seed in range(100)]
    in_parts = [t for t in topologies if any(StepKind.PARTS in node.steps for node in t.nodes)]
    assert len(in_parts) > 70
    assert {t.footprints.extent_max > 0 for t in in_parts} == {True, False}
    assert {t.footprints.check_us > 0 for t in in_parts} == {True, False}


def test_a_protocol_that_cannot_roll_back_is_not_tried_with_rollback() -> None:
    for given in ({"recovery": ROLLBACK}, {"sharing_depth": 0}):
        with pytest.raises(SettingError, match="continuous needs all determinants"):
            Range(protocol=CONTINUOUS, **given)


def test_every_kind_of_source_is_generated() -> None:
    nodes = [node for seed in range(400) for node in generate(seed).topology.nodes]
    volumes = [node.volume for node in nodes if node.volume is not None]
    assert {volume.partitions for volume in volumes} == {1, 2, 4}
    assert {volume.burst > 1 for volume in volumes} == {False, True}
    naps = any(v.in_turn and v.nap_us > (v.idle_us or v.nap_us) for v in volumes if v.partitions > 1)
    assert naps, "a partition falls idle beside one that has finished"


def test_every_kind_of_condition_is_generated() -> None:
    scenarios = [generate(seed) for seed in range(400)]
    conditions = [scenario.conditions for scenario in scenarios]
    assert {condition.spill for condition in conditions} == set(Spill)
    assert {condition.window for condition in conditions} == {1, 2, 4, 16}
    assert len({condition.standbys_per_process for condition in conditions}) > 2
    assert {condition.cuts_early for condition in conditions} == {False, True}
    available = {s.topology.sharing_depth for s in scenarios if s.conditions.availability}
    assert available == {1, 2, 3}, "where all determinants are held, nothing is ever lost"


def test_some_coordinators_are_lost_after_a_task_has_restarted_without_log() -> None:
    range_ = Range(("kill", "coordinator"), sharing_depth=1, tasks_max=10)
    chosen = [s for s in (generate(seed, range_) for seed in range(150)) if s.faults[1:2] and s.conditions.availability]
    stories = ("\n".join(run_scenario(s).story) for s in chosen if s.faults[1].kind is FaultKind.COORDINATOR)
    assert any(0 <= story.find("restarted without log") < story.find("the coordinator is lost") for story in stories)


def test_the_same_seed_gives_the_same_story() -> None:
    for scenario in small_first(range(10))[:4]:
        assert run_scenario(scenario).story == run_scenario(generate(scenario.seed)).story


def test_no_process_fails_in_a_run_without_faults() -> None:
    for seed in range(8):
        verdict = run_seed(seed, Range(faults=(), tasks_max=10))
        assert not verdict.problems, described(verdict)
        assert not any("killed" in line or "failed" in line for line in verdict.story)


def test_a_failing_scenario_is_shrunk_to_fewer_faults_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.BUGS["services_are_asked_again_on_replay"].plant(monkeypatch)
    range_ = Range(("kill",), tasks_max=10)
    large = (s for s in small_first(range(200), range_) if len(s.faults) > 2 and s.topology.tasks > 6)
    failed = next(verdict for verdict in map(run_scenario, large) if verdict.problems)
    small = shrink(failed, runs_max=60)
    assert small.problems
    assert run_scenario(small.scenario).problems == small.problems
    assert len(small.scenario.faults) < len(failed.scenario.faults)
    assert small.scenario.topology.tasks < failed.scenario.topology.tasks
