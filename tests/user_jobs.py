"""Jobs that users write, run unchanged while a task is killed, and compared with oracles in every row.

Their sources are replaced by ones that take four seconds, so that the kill comes in the middle.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Record
from clonos_py.connectors import FileSink, read_results
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from examples import (
    debts,
    deduplication,
    enrichment,
    features,
    late_payers,
    limits,
    orders_and_payments,
    payers,
    scoring,
    sessions,
    sqlite_upserts,
    statements,
)
from examples.rates_server import BASE_RATES
from tests import oracles
from tests.counting_rates import counting_rates
from tests.paced_rows import PacedRows
from tests.running_totals import Sales


def run_killed(job: Job, runtime: str, kill: str) -> None:
    """Runs a job to its end; one task is killed in the middle, and no other fails."""
    events: list[Event] = []
    settings = {"runtime": runtime, "parallelism": 1, "checkpoint_interval": "300ms", "kills": [f"{kill}[0]@900ms"]}
    run_job(job, resolve(command_line=settings), lambda at_us, event: events.append(event))
    failed = [event for event in events if isinstance(event, TaskFailed)]
    assert len(failed) == 1, failed
    assert not any(isinstance(event, RolledBack) for event in events)


def paced(job: Job, files: Mapping[str, str]) -> Job:
    """The job with its sources, by name, giving the rows of these files slowly: where one process reads them all, in
    four seconds."""
    seconds = 4.0 / len(files)
    return job.with_connectors({name: _paced(pattern, job.record_of(name), seconds) for name, pattern in files.items()})


def _paced(pattern: str, record: type[Record], seconds: float) -> PacedRows:
    schema = record.schema()
    table = pa.Table.from_pylist(oracles.rows(pattern)).select(schema.names)
    return PacedRows(table.cast(schema), record, seconds)


def sessions_with_late_rows(runtime: str, folder: Path) -> None:
    out = str(folder / "out")
    run_killed(paced(sessions.job(out=out), {"pages": "pages.jsonl"}), runtime, "sessions")
    found = [(row["user"], row["window_start"], row["window_end"], row["pages"]) for row in read_results(out)]
    late = [row["id"] for row in read_results(f"{out}-late")]
    expected, expected_late = oracles.sessions(oracles.rows("pages.jsonl"))
    assert Counter(found) == Counter(expected)
    assert Counter(late) == Counter(expected_late)
    assert late


def orders_and_payments_with_timeouts(runtime: str, folder: Path) -> None:
    to_files = {name: FileSink(str(folder / name)) for name in ("paid", "unpaid")}
    job = orders_and_payments.job.with_connectors(to_files)
    run_killed(paced(job, {"orders": "purchases.jsonl", "payments": "payments.jsonl"}), runtime, "settlement")
    paid, unpaid = oracles.settled(oracles.rows("purchases.jsonl"), oracles.rows("payments.jsonl"))
    found = [(row["order"], row["waited"]) for row in read_results(str(folder / "paid"))]
    assert Counter(found) == Counter(paid.items())
    missing = [(row["order"], Decimal(row["missing"])) for row in read_results(str(folder / "unpaid"))]
    assert Counter(missing) == Counter(unpaid.items())


def orders_beside_their_payments(runtime: str, folder: Path) -> None:
    out = str(folder)
    job = paced(late_payers.job(out=out), {"orders": "purchases.jsonl", "payments": "payments.jsonl"})
    run_killed(job, runtime, "payers")
    found = [(row["id"], row["customer"], row["amount"] and str(row["amount"])) for row in read_results(out)]
    expected = oracles.payers(oracles.rows("purchases.jsonl"), oracles.rows("payments.jsonl"))
    assert Counter(found) == Counter(expected)
    assert 0 < sum(amount is None for *_, amount in found) < len(found)


def debts_of_joined_tables(runtime: str, folder: Path) -> None:
    out = str(folder)
    run_killed(
        paced(debts.job(out=out), {"orders": "purchases.jsonl", "payments": "payments.jsonl"}), runtime, "balances"
    )
    found = {row["customer"]: (row["orders"], Decimal(row["owed"])) for row in read_results(out)}
    assert found == oracles.debts(oracles.rows("purchases.jsonl"), oracles.rows("payments.jsonl"))


def payers_of_known_orders(runtime: str, folder: Path) -> None:
    out = str(folder)
    job = paced(payers.job(out=out), {"orders": "purchases.jsonl", "payments": "payments.jsonl"})
    run_killed(job, runtime, "payers")
    check_payers(read_results(out))


def check_payers(found: list[dict[str, Any]]) -> None:
    customers = {order["id"]: order["customer"] for order in oracles.rows("purchases.jsonl")}
    payments = [(payment["order"], payment["amount"]) for payment in oracles.rows("payments.jsonl")]
    assert Counter((row["order"], str(row["amount"])) for row in found) == Counter(payments)
    assert all(row["customer"] == customers[row["order"]] for row in found)


def statements_of_customers(runtime: str, folder: Path) -> None:
    out = str(folder / "out")
    run_killed(paced(statements.job(out=out), {"orders": "purchases.jsonl"}), runtime, "statements")
    orders = oracles.rows("purchases.jsonl")
    found = [(row["id"], row["orders"], Decimal(row["spent"])) for row in read_results(out)]
    assert Counter(found) == Counter(oracles.statements(orders))
    assert {row["id"]: row["steps"] for row in read_results(f"{out}-rises")} == oracles.rises(orders)


def limits_that_change(runtime: str, folder: Path) -> None:
    out = str(folder)
    files = {"txns": "transactions.jsonl", "limits": "limits.jsonl"}
    run_killed(paced(limits.job(out=out), files), runtime, "flagged")
    found = [(row["account"], row["at"], row["limit"]) for row in read_results(out)]
    assert Counter(found) == Counter(oracles.flagged(*map(oracles.rows, files.values())))


def best_sellers(runtime: str, folder: Path) -> None:
    """All 800,000 rows with THOROUGH, a quarter without."""
    sales = Sales(800_000 if os.environ.get("THOROUGH") else 200_000)
    changes = sales.run(str(folder), runtime, ["totals[1]@500ms"])
    assert len(changes) > 1_000
    sales.check(changes)


def enrichment_over_http(runtime: str, folder: Path) -> None:
    """Each bid has a rate of its own currency, which no other bid has."""
    out, bids = str(folder / "out"), oracles.rows("bids.jsonl")
    with counting_rates() as server:
        run_killed(paced(enrichment.job(server.address, out=out), {"bids": "bids.jsonl"}), runtime, "map")
    found = read_results(out)
    rates = [Decimal(row["usd"]) / Decimal(row["price"]) for row in found]
    assert len(set(rates)) == len(rates)
    priced = [(row["auction"], row["price"], server.served[int(rate)]) for row, rate in zip(found, rates, strict=True)]
    known = [bid for bid in bids if bid["currency"] in BASE_RATES]
    assert Counter(priced) == Counter((bid["auction"], bid["price"], bid["currency"]) for bid in known)
    assert all(row["owner"] == f"owner {row['auction'] - 1_000}" for row in found)
    assert len(read_results(f"{out}-failed")) == len(bids) - len(known)


def deduplication_with_ttl(runtime: str, folder: Path) -> None:
    out = str(folder)
    run_killed(paced(deduplication.job(out=out), {"events": "repeated.jsonl"}), runtime, "first")
    found = [(row["id"], row["attempt"]) for row in read_results(out)]
    assert Counter(found) == Counter(oracles.distinct(oracles.rows("repeated.jsonl")))


def scores_of_a_model(runtime: str, folder: Path) -> None:
    out = str(folder)
    run_killed(paced(scoring.job(out=out), {"payments": "transactions.jsonl"}), runtime, "scorer")
    weights = json.loads((oracles.DATA / "risk.json").read_text())["weights"]
    found = [(row["account"], row["cents"], row["risk"]) for row in read_results(out)]
    expected = oracles.scores(oracles.rows("transactions.jsonl"), weights)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], rel=1e-12)


def upserts_into_sqlite(runtime: str, folder: Path) -> None:
    database = folder / "volumes.sqlite"
    job = sqlite_upserts.job(database=str(database))
    run_killed(paced(job, {"orders": "orders-1.jsonl"}), runtime, "sum")
    assert volumes_in(database) == oracles.volumes(oracles.rows("orders-1.jsonl"))


def volumes_in(database: Path) -> dict[str, tuple[int, int]]:
    """None before there is a table."""
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'volume'").fetchone():
            return {}
        return {symbol: (orders, sold) for symbol, orders, sold in connection.execute("SELECT * FROM volume")}


def features_by_polars(runtime: str, folder: Path) -> None:
    out = str(folder)
    run_killed(paced(features.job(out=out), {"trips": "trips.csv"}), runtime, "made")
    check_features(read_results(out))


def check_features(found: list[dict[str, Any]]) -> None:
    expected = oracles.features(oracles.rows("trips.csv"))
    assert Counter(row["id"] for row in found) == Counter(list(expected))
    for row in found:
        assert (row["hour"], row["kmh"], row["log_km"]) == pytest.approx(expected[row["id"]], rel=1e-12)


USER_JOBS: tuple[Callable[[str, Path], None], ...] = (
    sessions_with_late_rows,
    orders_and_payments_with_timeouts,
    orders_beside_their_payments,
    debts_of_joined_tables,
    payers_of_known_orders,
    statements_of_customers,
    limits_that_change,
    best_sellers,
    enrichment_over_http,
    deduplication_with_ttl,
    scores_of_a_model,
    upserts_into_sqlite,
    features_by_polars,
)
"""Each runs a job on a runtime, into a folder, and checks what it gave."""
