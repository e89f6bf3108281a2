"""Simulated jobs that find their checkpoint interval themselves survive kills, with every protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.job.events import AutoInterval, JobPolicy
from clonos_py.model.coordinator_events import CoordinatorEvent, IntervalChosen
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.protocols import ALIGNED, UNALIGNED, UNCOORDINATED
from tests.sim.points import described
from tests.witness import WitnessJob, WitnessLedger, disagreements

JOB = WitnessJob(total=100)
SEEDS = 4
POLICY = JobPolicy(checkpoint_interval_us=10_000, auto_interval=AutoInterval(5_000, 100_000, mtbf_us=1_000_000))


@pytest.mark.parametrize("protocol", [ALIGNED, UNALIGNED, UNCOORDINATED], ids=str)
def test_a_job_that_finds_its_interval_survives_kills(protocol: ProtocolProperties) -> None:
    for seed in range(SEEDS):
        ledger, chosen = WitnessLedger(), list[IntervalChosen]()

        def listen(time_us: int, event: CoordinatorEvent, chosen: list[IntervalChosen] = chosen) -> None:
            if isinstance(event, IntervalChosen):
                chosen.append(event)

        plan = replace(JOB.plan(ledger), protocol=protocol)
        outcome = simulate_plan(plan, seed, kills=4, policy=POLICY, listener=listen)
        outcome.problems.extend(disagreements(ledger, JOB.total))
        assert not outcome.problems, described(seed, outcome)
        assert chosen
        assert all(0.005 <= event.interval_s <= 0.1 for event in chosen)
