"""Generated jobs that are stopped and go on at another parallelism, under failures: nothing is lost or taken twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from clonos_py.model.plan import Partitioning
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.runtime.sim.chaos import FaultKind
from clonos_py.runtime.sim.generator import Range, generate
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.settings.protocols import PROTOCOLS
from tests.chunks import chunks
from tests.sim.test_generated_jobs import described

SEEDS, SIZE = 1_000, 10
RESCALING = [protocol for protocol in PROTOCOLS if protocol.coordinated and not protocol.stores_frames]


@pytest.mark.parametrize("protocol", RESCALING, ids=str)
@pytest.mark.parametrize("seeds", chunks(SEEDS, SIZE, always=SIZE))
def test_a_run_goes_on_at_another_parallelism(protocol: ProtocolProperties, seeds: range) -> None:
    done, rescaled = Counter[FaultKind](), 0
    for seed in seeds:
        verdict = run_seed(seed, Range(protocol=protocol, rescaled=True))
        assert not verdict.problems, described(verdict)
        done += verdict.faults
        rescaled += any("goes on at another parallelism" in line for line in verdict.story)
    assert done.total() > SIZE
    assert rescaled >= SIZE // 5, "few runs were stopped before their end: the test proves little"


def test_the_numbers_of_tasks_differ_and_those_of_forward_edges_stay_equal() -> None:
    found = Counter[bool]()
    for seed in range(50):
        topology = generate(seed, Range(rescaled=True)).topology
        other = topology.rescaled(random.Random(seed))
        found[[node.parallelism for node in other.nodes] == [node.parallelism for node in topology.nodes]] += 1
        for node in other.nodes:
            for feed in node.feeds:
                same = other.nodes[feed.source].parallelism == node.parallelism
                assert same or feed.partitioning is not Partitioning.FORWARD
    assert found[False] > found[True]
