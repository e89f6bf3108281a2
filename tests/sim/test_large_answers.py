"""Answers kept aside exist as long as a log refers to them: every answer of the witness job is kept aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_py.causal import gate
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import JobPolicy
from clonos_py.runtime.sim.run import SimulatedEnvironment, SimulatedRun, simulate_plan
from tests.sim.points import described
from tests.witness import WitnessJob, WitnessLedger, disagreements

SEEDS, SEEDS_MAX = 6, 100
JOB = WitnessJob(total=100)


@pytest.fixture(autouse=True)
def every_answer_is_kept_aside(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs of the answers that were read again."""
    ask, service, kept = gate.Gate.ask, SimulatedEnvironment.service, MemoryStore.kept_answer
    fetched: list[int] = []

    def spelled(self: SimulatedEnvironment, name: str) -> Callable[[], str]:
        draw = service(self, name)
        return lambda: str(draw())

    def asked(self: gate.Gate, kind: str, live: Callable[[], Any]) -> int:
        return int(ask(self, kind, live))

    def noted(self: MemoryStore, name: str) -> bytes:
        fetched.append(int(name.split(".", maxsplit=1)[0]))
        return kept(self, name)

    monkeypatch.setattr(gate, "ASIDE_BYTES", 1)
    monkeypatch.setattr(gate.Gate, "ask", asked)
    monkeypatch.setattr(SimulatedEnvironment, "service", spelled)
    monkeypatch.setattr(MemoryStore, "kept_answer", noted)
    return fetched


def simulated(seed: int) -> SimulatedRun:
    """A run with many checkpoints."""
    ledger = WitnessLedger()
    outcome = simulate_plan(JOB.plan(ledger), seed, kills=6, policy=JobPolicy(checkpoint_interval_us=5_000))
    outcome.problems.extend(disagreements(ledger, JOB.total))
    return outcome


def test_an_answer_kept_aside_is_readable_after_every_checkpoint_while_a_log_refers_to_it(
    every_answer_is_kept_aside: list[int],
) -> None:
    for seed in range(SEEDS):
        outcome = simulated(seed)
        assert not outcome.problems, described(seed, outcome)
    assert len(set(every_answer_is_kept_aside)) > 1, set(every_answer_is_kept_aside)
    assert len(every_answer_is_kept_aside) > SEEDS


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_the_simulator_finds_answers_that_are_filed_under_too_low_an_epoch(
    monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    keep = SimulatedEnvironment.keep
    monkeypatch.setattr(
        SimulatedEnvironment, "keep", lambda self, epoch, content: keep(self, max(0, epoch - epochs), content)
    )
    for seed in range(SEEDS_MAX):
        if any("it was reclaimed while a log still referred to it" in p for p in simulated(seed).problems):
            return
    pytest.fail("it was not noticed")
