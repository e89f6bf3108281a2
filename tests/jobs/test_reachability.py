"""The reachability query as a job: its final paths equal those of a direct computation, whichever task is killed."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from clonos_py.bench.reachability.query import reachability
from clonos_py.bench.reachability.source import CommandSource
from clonos_py.connectors import MemorySink
from clonos_py.evaluation.reachability.generator import Reachability
from clonos_py.model.errors import SettingError
from clonos_py.settings.protocols import ALIGNED, PROTOCOL_NAMES, UNCOORDINATED
from clonos_py.testing import run
from tests.expected_paths import expected_paths, final_paths

COMMANDS = Reachability(500, nodes=650, disorder=1_000)
SOURCE = CommandSource(COMMANDS, partitions=4)
OTHERS = [(protocol, 2) for protocol in PROTOCOL_NAMES if protocol != UNCOORDINATED.name] + [(UNCOORDINATED.name, 1)]
"""``tests/sim`` has all protocols and their recoveries over generated jobs."""


@cache
def expected() -> Counter[bytes]:
    paths = expected_paths([COMMANDS.batch(0, COMMANDS.rows)]).to_pylist()
    return Counter({row["path"]: row["weight"] for row in paths})


@pytest.mark.parametrize(
    ("protocol", "parallelism"),
    [(UNCOORDINATED.name, 2), *(pytest.param(*run, marks=pytest.mark.thorough) for run in OTHERS)],
)
def test_the_paths_equal_those_of_a_direct_computation(protocol: str, parallelism: int) -> None:
    job = final_paths(SOURCE, MemorySink("paths"), protocol=protocol)
    found = run(job, {}, kills=2, parallelism=parallelism)["paths"]
    assert len(found) == len(expected()) > 100
    assert {row.path: row.weight for row in found} == expected()


@pytest.mark.parametrize(
    ("protocol", "parallelism"),
    [(ALIGNED.name, 2), pytest.param(UNCOORDINATED.name, 1, marks=pytest.mark.thorough)],
)
def test_the_paths_are_the_same_with_rollback_recovery(protocol: str, parallelism: int) -> None:
    job = final_paths(SOURCE, MemorySink("paths"), protocol=protocol, guarantee="exactly-once", sharing_depth=0)
    found = run(job, {}, kills=2, parallelism=parallelism)["paths"]
    assert {row.path: row.weight for row in found} == expected()


@pytest.mark.parametrize("chaining", [pytest.param("on", marks=pytest.mark.thorough), "off"])
def test_the_changes_of_all_paths_add_up_to_the_final_ones(chaining: str) -> None:
    found: Counter[bytes] = Counter()
    for row in run(reachability(SOURCE, MemorySink("changes"), chaining=chaining), {}, parallelism=2)["changes"]:
        found[row.path] += row.weight
    assert Counter({path: weight for path, weight in found.items() if weight}) == expected()


@pytest.mark.parametrize("setting", ["rate", "partitions"])
def test_a_source_without_rows_is_refused(setting: str) -> None:
    with pytest.raises(SettingError, match=f"{setting} is 0"):
        CommandSource(COMMANDS, **{setting: 0})
