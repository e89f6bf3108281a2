"""The short examples have the results of the oracles: from their files in one process, and in the simulator with
kills."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Record, testing
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from clonos_py.testing import check_sink
from examples import best_sellers, deduplication, features, scoring, sessions, sqlite_upserts
from tests import oracles
from tests.user_jobs import check_features, check_payers, volumes_in

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEEDS = 1
"""``tests/jobs`` has the operators under more failures."""
WEIGHTS = json.loads((oracles.DATA / "risk.json").read_text())["weights"]


def run(example: str, folder: Path) -> list[dict[str, Any]]:
    assert invoke(["run", str(EXAMPLES / f"{example}.py"), "--runtime", "local", "--out", str(folder)]) == 0
    return read_results(str(folder))


def leaders(changes: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    """By category and rank the product and its total, after all changes."""
    return {(row["category"], row["rank_number"]): (row["product"], row["total"]) for row in changes}


def expected_leaders(sales: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for sale in sales:
        totals[sale["category"], sale["product"]] += sale["amount"]
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for category in {sale["category"] for sale in sales}:
        mine = sorted((-total, product) for (where, product), total in totals.items() if where == category)
        found |= {(category, rank): (product, -total) for rank, (total, product) in enumerate(mine[:5], 1)}
    return found


def test_sessions_of_a_file_that_is_read_at_once_leave_out_late_pages(tmp_path: Path) -> None:
    found = {(row["user"], row["window_start"], row["window_end"], row["pages"]) for row in run("sessions", tmp_path)}
    assert found == oracles.sessions(oracles.rows("pages.jsonl"))[0]


def test_sessions_count_the_pages_in_time_under_any_failures() -> None:
    pages = oracles.rows("pages.jsonl")
    out = testing.run(sessions.job(), {"pages": [sessions.Page(**page) for page in pages]}, kills=2, seeds=SEEDS)
    found = [(row.user, row.window_start, row.window_end, row.pages) for row in out["counted"]]
    expected, late = oracles.sessions(pages)
    assert sorted(found) == sorted(expected)
    assert sorted(row.id for row in out["late"]) == sorted(late)
    assert late


def test_debts_are_what_is_not_paid(tmp_path: Path) -> None:
    found = {row["customer"]: (row["orders"], Decimal(row["owed"])) for row in run("debts", tmp_path)}
    assert found == oracles.debts(oracles.rows("purchases.jsonl"), oracles.rows("payments.jsonl"))


def test_each_payment_has_the_customer_of_an_order_that_was_known(tmp_path: Path) -> None:
    check_payers(run("payers", tmp_path))


def test_best_sellers_lead_their_categories(tmp_path: Path) -> None:
    assert leaders(run("best_sellers", tmp_path)) == expected_leaders(oracles.rows("sales.jsonl"))


def test_best_sellers_lead_their_categories_under_any_failures() -> None:
    sales = oracles.rows("sales.jsonl")
    rows = [best_sellers.Sale(**sale) for sale in sales]
    together = [rows[start : start + 8] for start in range(0, len(rows), 8)]
    changes = testing.run(best_sellers.job(), {"sales": together}, kills=2, seeds=SEEDS)["changes"]
    assert {row.change for row in changes} == {"insert", "update"}
    assert leaders([vars_of(row) for row in changes]) == expected_leaders(sales)


def vars_of(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("category", "rank_number", "product", "total")}


def test_events_pass_once_an_hour(tmp_path: Path) -> None:
    found = [(row["id"], row["attempt"]) for row in run("deduplication", tmp_path)]
    assert sorted(found) == sorted(oracles.distinct(oracles.rows("repeated.jsonl")))


def test_events_pass_once_an_hour_under_any_failures() -> None:
    events = oracles.rows("repeated.jsonl")
    rows = [deduplication.Event(**event) for event in events]
    out = testing.run(deduplication.job(), {"events": rows}, kills=2, seeds=SEEDS)
    expected = oracles.distinct(events)
    assert sorted((row.id, row.attempt) for row in out["distinct"]) == sorted(expected)
    assert any(attempt > 1 for _, attempt in expected), "some events pass again after an hour"
    assert len(expected) < len(events)


def test_payments_are_scored_under_any_failures() -> None:
    payments = oracles.rows("transactions.jsonl")
    rows = [scoring.Payment(payment["account"], payment["cents"]) for payment in payments]
    out = testing.run(scoring.job(), {"payments": rows}, kills=2, seeds=SEEDS)
    expected = oracles.scores(payments, WEIGHTS)
    assert [(row.account, row.cents) for row in out["scores"]] == [row[:2] for row in expected]
    assert [row.risk for row in out["scores"]] == pytest.approx([row[2] for row in expected], rel=1e-12)


def test_payments_of_the_file_are_scored(tmp_path: Path) -> None:
    found = [row["risk"] for row in run("scoring", tmp_path)]
    expected = oracles.scores(oracles.rows("transactions.jsonl"), WEIGHTS)
    assert found == pytest.approx([risk for _, _, risk in expected], rel=1e-12)


def test_volumes_are_stored_in_the_database(tmp_path: Path) -> None:
    database = tmp_path / "volumes.sqlite"
    command = ["run", str(EXAMPLES / "sqlite_upserts.py"), "--runtime", "local", "--database", str(database)]
    assert invoke(command) == 0
    assert volumes_in(database) == oracles.volumes(oracles.rows("orders-1.jsonl"))


class Volume(Record):
    symbol: str
    orders: int
    quantity: int


def test_the_sink_of_volumes_keeps_the_contract(tmp_path: Path) -> None:
    database = tmp_path / "volumes.sqlite"
    sink = sqlite_upserts.VolumeSink(str(database))
    check_sink(
        sink,
        lambda: [Volume(symbol, *volume) for symbol, volume in volumes_in(database).items()],
        row=lambda number: Volume(f"S{number}", 1, number),
        later=lambda number: Volume(f"S{number}", 2, -number),
        deaths=8,
    )


def test_trips_get_features(tmp_path: Path) -> None:
    check_features(run("features", tmp_path))


def test_trips_get_features_under_any_failures() -> None:
    trips = [
        features.Trip(int(trip["id"]), datetime.fromisoformat(trip["started"]), int(trip["seconds"]), float(trip["km"]))
        for trip in oracles.rows("trips.csv")
    ]
    out = testing.run(features.job(), {"trips": trips}, kills=2, seeds=SEEDS)["features"]
    check_features([{name: getattr(row, name) for name in ("id", "hour", "kmh", "log_km")} for row in out])
