"""Medians of repetitions beside the paper's figures."""

from __future__ import annotations

from typing import Any

from clonos_py.evaluation.checkmate.tables import markdown, median, tables


def run(number: int, query: str = "q3", restart_ms: float | None = 100.0, **more: Any) -> dict[str, Any]:
    key = {
        "query": query,
        "protocol": "uncoordinated",
        "recovery": "rollback",
        "parallelism": 2,
        "skew": 0,
        "load": 80,
        "keys": "hash",
    }
    failure = {"restart_ms": restart_ms, "recovery_ms": 900.0, "detected_ms": 20.0, "invalid": number, "durable": 40}
    metrics = {
        "throughput_events_per_s": 1_000.0 * number,
        "overhead": 1.0 + number / 1_000,
        "latency_undisturbed_ms": {"p50": 10.0 * number, "p95": 60.0, "p99": 99.0},
        "checkpointing_ms": {"count": 3, "mean": 7.0 * number},
        "checkpoints": {"snapshots": 60, "forced": 0, "manifests": 9, "aborted": 0},
        "failure": failure,
    }
    return {**key, "run": number, "metrics": metrics, **more}


def text(searches: list[dict[str, Any]], runs: list[dict[str, Any]]) -> str:
    return markdown(tables(searches, runs))


def section(text: str, title: str) -> list[str]:
    return next(part for part in text.split("### ") if part.startswith(title)).splitlines()


def test_medians_are_shown_beside_the_figures_of_the_paper() -> None:
    lines = section(text([], [run(1), run(9), run(2)]), "Table II:")
    assert "| 2 | uncoordinated (UNC) | rollback | 1.002 |" in lines
    assert "| 10 (paper) | communication-induced (CIC) | rollback | 1.82 |" in lines
    invalid = section(text([], [run(1), run(9), run(2)]), "Table III")
    assert "| 2 | uncoordinated (UNC) | rollback | 60 (5.0%) |" in invalid
    assert "| 10 (paper) | uncoordinated (UNC) | rollback | 455 (4%) |" in invalid


def test_invalid_snapshots_are_shown_beside_the_number_expected_from_times() -> None:
    runs = [run(number) for number in (1, 2, 3)]
    for number, made in enumerate(runs):
        made["metrics"]["failure"]["expected"] = number
    invalid = section(text([], runs), "Table III")
    assert "| 2 | uncoordinated (UNC) | rollback | 60 (5.0%, expected 2.5%) |" in invalid


def test_a_median_over_fewer_runs_says_how_many() -> None:
    assert median([{"x": 1.0}, {"x": None}, {"x": 3.0}], lambda m: m["x"]) == "2.0 (2 of 3)"
    assert median([{"x": None}], lambda m: m["x"]) == "–"
    found = text([], [run(1, restart_ms=None), run(2, restart_ms=80.0)])
    assert "| 2 | uncoordinated (UNC) | rollback | 80.0 (1 of 2) |" in section(found, "Figure 11")


def test_the_cyclic_query_has_a_table_of_its_own() -> None:
    lines = section(text([], [run(2, "reachability")]), "Table IV")
    assert "| workers | protocol | recovery | CT | RT | IC |" in lines
    assert "| 2 | uncoordinated (UNC) | rollback | 14.0 ms | 100 ms | 5.0% |" in lines
    assert "| 5 (paper) | communication-induced (CIC) | rollback | 2.73 ms | 347 ms | 1.7% |" in lines
    assert "(paper)" not in "".join(section(text([], [run(2, "reachability")]), "Table III"))


def test_skewed_runs_are_in_tables_of_their_own_by_load() -> None:
    found = text([], [run(1), run(4, skew=10, load=50), run(6, skew=10), run(8, skew=30, load=50)])
    assert "| 2 | uncoordinated (UNC) | rollback | 10.0 |" in section(found, "Figure 9")
    half = section(found, "Figure 12: median latency under skew, ms, 50%")
    assert "| 2 | uncoordinated (UNC) | rollback | 10% | hash | 40.0 |" in half
    assert "| 2 | uncoordinated (UNC) | rollback | 30% | hash | 80.0 |" in half
    assert "| 2 | uncoordinated (UNC) | rollback | 10% | hash | 60.0 |" in section(
        found, "Figure 12: median latency under skew, ms, 80%"
    )
    assert "Figure 13: restart time under skew, ms, 80%" not in found


def test_throughput_is_relative_to_that_without_checkpoints() -> None:
    key = {"query": "q1", "parallelism": 1, "trials": []}
    searches = [
        {**key, "protocol": "aligned", "recovery": "causal", "events_per_s": 900_000.0},
        {**key, "protocol": "none", "recovery": "none", "events_per_s": 1_000_000.0},
    ]
    lines = section(text(searches, []), "Figure 7")
    assert lines[4:6] == [
        "| 1 | no checkpoints | none | 1,000,000 (100%) |",
        "| 1 | aligned (COOR) | causal | 900,000 (90%) |",
    ]


def test_events_read_by_runs_are_relative_to_those_without_checkpoints() -> None:
    runs = [run(1), run(3), run(2), run(4, protocol="none", recovery="none")]
    lines = section(text([], runs), "Throughput of the runs, events/s (of that without checkpoints)")
    assert lines[4:6] == [
        "| 2 | no checkpoints | none | 4,000 (100%) |",
        "| 2 | uncoordinated (UNC) | rollback | 2,000 (50%) |",
    ]


def test_without_runs_there_are_no_tables() -> None:
    assert text([], []) == "there are no finished runs yet"
