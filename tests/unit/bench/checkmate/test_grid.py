"""Which runs CheckMate's evaluation has."""

from __future__ import annotations

import pytest

from clonos_py.bench.checkmate.grid import GridSelection, Variant, cells, variants
from clonos_py.model.errors import SettingError
from clonos_py.settings.resolution import resolve


def test_every_variant_has_settings_that_fit_together() -> None:
    for variant in variants(GridSelection()):
        settings = resolve({"standbys_per_process": 8}, command_line=variant.settings)
        assert not settings.chaining
        assert settings.rollback == (variant.recovery == "rollback")
        assert settings.parallelism == variant.parallelism


def test_the_baseline_has_no_protocol_no_skew_and_no_failure() -> None:
    found = cells(GridSelection(queries=("q3",), parallelisms=(1,), runs=2), paced=False)
    baseline = [cell for cell in found if cell.variant.recovery == "none"]
    assert [(cell.skew, cell.load, cell.run) for cell in baseline] == [(0, 80, 1), (0, 80, 2)]
    assert {cell.variant for cell in baseline} == {Variant("q3", "none", "none", 1)}
    assert not baseline[0].variant.kills


def test_skewed_runs_have_keyed_queries_and_two_loads() -> None:
    selection = GridSelection(("q1", "q3", "reachability"), ("aligned",), ("causal",), (2,), (0, 30), 1)
    found = [(cell.variant.query, cell.skew, cell.keys, cell.load) for cell in cells(selection, paced=False)]
    skewed = [("q3", 30, keys, load) for keys in ("hash", "mod") for load in (50, 80)]
    assert found == [("q1", 0, "hash", 80), ("q3", 0, "hash", 80), *skewed, ("reachability", 0, "hash", 80)]


def test_a_given_rate_leaves_one_load() -> None:
    selection = GridSelection(("q3",), ("aligned",), ("causal",), (2,), (0, 30), 1, ("mod",))
    assert [(cell.skew, cell.load) for cell in cells(selection, paced=True)] == [(0, None), (30, None)]


def test_the_whole_evaluation_names_each_run_once() -> None:
    found = cells(GridSelection(), paced=False)
    assert len({tuple(cell.key.values()) for cell in found}) == len(found)
    # 5 queries, 3 parallelisms: the baseline and 4 x 2 variants; 3 queries are skewed 3 times at 2 loads, 2 ways
    assert len(found) == 5 * 3 * (1 + 8) * 5 + 3 * 3 * 8 * 3 * 2 * 2 * 5


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"queries": ["q2"]}, "there is no query 'q2' in CheckMate's evaluation: choose from q1, q3"),
        ({"protocols": ["chandy"]}, "there is no protocol 'chandy'"),
        ({"recoveries": ["prayer"]}, "there is no recovery 'prayer'"),
        ({"parallelisms": [0]}, "parallelism 0 cannot be run: choose from 1 to 128"),
        ({"keys": ["range"]}, "there is no way to share keys 'range'"),
        ({"skews": [101]}, "skew 101 cannot be run: choose from 0 to 100"),
    ],
)
def test_an_unknown_choice_is_named_with_the_known_ones(selection: dict[str, list[object]], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        GridSelection(**selection)  # type: ignore[arg-type]


@pytest.mark.parametrize("selection", [{"queries": ["q1"], "skews": [50]}, {"recoveries": ["none"], "skews": [10, 50]}])
def test_a_choice_without_any_run_is_an_error(selection: dict[str, list[object]]) -> None:
    with pytest.raises(SettingError, match="nothing to run: only q3, q8, q12 are run under skew"):
        cells(GridSelection(**selection), paced=False)  # type: ignore[arg-type]
