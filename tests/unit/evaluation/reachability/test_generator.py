"""The commands of the reachability query: the same in any pieces, in the paper's shares, and with few enough paths."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from clonos_py.bench.reachability.rows import LINKS, PATHS, changes, nodes_of
from clonos_py.columns.views import fixed
from clonos_py.evaluation.reachability.generator import BASE_TIME_US, BLOCK_ROWS, Command, Reachability
from clonos_py.model.errors import SettingError
from tests.expected_paths import expected_paths


def test_a_range_has_the_same_commands_whole_or_in_two_pieces() -> None:
    made = Reachability(120_000)
    whole = made.batch(49_000, 101_000)
    assert [*made.batch(49_000, 77_777).to_pylist(), *made.batch(77_777, 101_000).to_pylist()] == whole.to_pylist()
    assert whole.schema == Command.schema()
    whole.validate(full=True)


def test_a_seed_determines_the_stream() -> None:
    assert Reachability(60_000).batch(0, 60_000) == Reachability(60_000).batch(0, 60_000)
    assert Reachability(60_000).batch(0, 60_000) != Reachability(60_000, seed=2).batch(0, 60_000)


def test_commands_are_60_15_20_and_5_percent_additions_and_deletions_of_links_and_sources() -> None:
    rows = Reachability(200_000).batch(2 * BLOCK_ROWS, 4 * BLOCK_ROWS).to_pylist()
    kinds = Counter((row["added"], row["target"] is not None) for row in rows)
    assert kinds == {(True, True): 60_000, (True, False): 15_000, (False, True): 20_000, (False, False): 5_000}


def test_each_deleted_item_is_added_once_and_one_in_eight_deletions_comes_first() -> None:
    there: Counter[tuple[Any, Any]] = Counter()
    early = deleted = 0
    for row in Reachability(110_007).batch(0, 110_007).to_pylist():
        what = row["node"], row["target"]
        there[what] += 1 if row["added"] else -1
        deleted += not row["added"]
        early += not row["added"] and there[what] < 0
    assert min(there.values()) >= 0
    assert early / deleted == pytest.approx(0.125, abs=0.02)


def test_times_grow_with_the_rows_in_any_disorder() -> None:
    times = fixed(Reachability(60_000, event_rate=1_000).batch(0, 60_000).column("date_time"))
    assert (times == BASE_TIME_US + np.arange(60_000) * 1_000).all()


@pytest.mark.parametrize(("rows", "nodes"), [(50_000, 50_000), (100_000, 60_000)])
def test_the_number_of_paths_is_that_of_random_links_of_this_density(rows: int, nodes: int) -> None:
    made = Reachability(rows, nodes)
    commands = made.batch(0, rows)
    sources = changes(commands)[1]["weight"].to_numpy().sum()
    density = made.links_per_node
    paths = expected_paths([commands]).num_rows
    assert paths == pytest.approx(sources * density / (1 - density), rel=0.15)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"rows": 5, "nodes": 2**32}, "nodes is at most"),
        ({"rows": 5, "disorder": 60_000}, "disorder from 0 to 50000"),
        ({"rows": 1_000_000, "nodes": 500_000}, "0.80 links per node"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Reachability(**options)


def test_commands_are_deltas_of_links_and_of_paths_of_one_node() -> None:
    schema = Command.schema()
    rows = [(3, 4, True), (7, None, True), (3, 4, False), (8, None, False)]
    commands = schema.empty_table().from_pylist(
        [{"node": a, "target": b, "added": c, "date_time": 0} for a, b, c in rows], schema
    )
    links, sources = changes(commands.to_batches()[0])
    assert (links.schema, sources.schema) == (LINKS, PATHS)
    assert [tuple(row.values()) for row in links.to_pylist()] == [(3, 4, 1), (3, 4, -1)]
    assert [tuple(row.values()) for row in sources.to_pylist()] == [
        (7, (7).to_bytes(8, "little"), 1),
        (8, (8).to_bytes(8, "little"), -1),
    ]
    starts, nodes = nodes_of(sources.column("path"))
    assert (starts.tolist(), nodes.tolist()) == ([0, 1, 2], [7, 8])
