"""The examples have the right results, run from the command line in one process."""

from __future__ import annotations

import ast
import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clonos_py import at, testing
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from examples import fraud, from_python, hot_auctions, orders_and_payments
from examples.rates_server import BASE_RATES, Rates
from tests import oracles

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "examples" / "data"


def run(example: str, *options: str) -> None:
    assert invoke(["run", str(ROOT / "examples" / f"{example}.py"), "--runtime", "local", *options]) == 0


def rows(pattern: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(DATA.glob(pattern)) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("parallelism", [pytest.param("1", marks=pytest.mark.thorough), "2"])
def test_word_count_counts_every_word(tmp_path: Path, parallelism: str) -> None:
    run("word_count", "--out", str(tmp_path), "--parallelism", parallelism)
    texts = "\n".join(path.read_text() for path in DATA.glob("*.txt"))
    expected = Counter(re.findall(r"[a-z]+", texts.lower()))
    assert {row["word"]: int(row["times"]) for row in read_results(str(tmp_path))} == expected


def test_flights_are_counted_by_their_own_times(tmp_path: Path) -> None:
    run("flights", "--out", str(tmp_path))
    assert [(row["window_start"], row["flights"], row["longest_delay"]) for row in read_results(str(tmp_path))] == [
        ("2026-01-31T09:30:00Z", 3, "PT960S"),
        ("2026-01-31T09:45:00Z", 1, "-PT60S"),
        ("2026-01-31T10:00:00Z", 1, "PT2640S"),
    ]


def test_a_script_previews_and_runs_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    from_python.main()
    first, *lines = capsys.readouterr().out.splitlines()
    orders = rows("orders-*.jsonl")
    assert len(ast.literal_eval(first)) == 5
    expected = {
        (symbol, sum(o["quantity"] for o in orders if o["symbol"] == symbol))
        for symbol in {o["symbol"] for o in orders}
    }
    assert all(any(f"{symbol!r}" in line and f"{volume}" in line for line in lines) for symbol, volume in expected)


def test_order_matching_trades_within_limits_and_leaves_no_match_undone(tmp_path: Path) -> None:
    run("order_matching", "--out", str(tmp_path), "--parallelism", "2")
    orders = {order["id"]: order for order in rows("orders-*.jsonl")}
    left = {number: order["quantity"] for number, order in orders.items()}
    trades = read_results(str(tmp_path))
    assert trades
    for trade in trades:
        buy, sell, price = orders[trade["buyer"]], orders[trade["seller"]], Decimal(trade["price"])
        assert (buy["side"], sell["side"], buy["symbol"]) == ("buy", "sell", sell["symbol"])
        assert Decimal(sell["price"]) <= price <= Decimal(buy["price"])
        left[buy["id"]] -= trade["quantity"]
        left[sell["id"]] -= trade["quantity"]
    assert min(left.values()) >= 0
    assert_no_match_is_left([order for number, order in orders.items() if left[number]])


def assert_no_match_is_left(resting: list[dict[str, Any]]) -> None:
    prices: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for order in resting:
        prices[order["symbol"], order["side"]].append(Decimal(order["price"]))
    for symbol in {order["symbol"] for order in resting}:
        dearest_buy = max(prices[symbol, "buy"], default=Decimal("-Infinity"))
        assert dearest_buy < min(prices[symbol, "sell"], default=Decimal("Infinity"))


@pytest.fixture
def rates() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rates)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_enrichment_asks_once_per_bid_and_sets_failures_aside(tmp_path: Path, rates: str) -> None:
    out = tmp_path / "enriched"
    run("enrichment", "--rates", rates, "--out", str(out))
    bids = rows("bids.jsonl")
    enriched = read_results(str(out))
    known = sorted((bid["auction"], bid["price"]) for bid in bids if bid["currency"] in BASE_RATES)
    assert sorted((row["auction"], str(row["price"])) for row in enriched) == known
    assert all(row["owner"] == f"owner {row['auction'] - 1_000}" for row in enriched)
    failed = read_results(f"{out}-failed")
    assert len(failed) == len(bids) - len(enriched) > 0
    assert all("rate" in row["error"] for row in failed)


def test_quotes_come_in_the_order_of_their_orders_whichever_is_answered_first(tmp_path: Path, rates: str) -> None:
    out = tmp_path / "quotes"
    run("quotes", "--rates", rates, "--out", str(out))
    bids = [bid for bid in rows("bids.jsonl") if bid["currency"] in BASE_RATES]
    quoted = read_results(str(out))
    assert [(row["auction"], str(row["price"])) for row in quoted] == [(bid["auction"], bid["price"]) for bid in bids]
    assert {row["opinions"] for row in quoted if Decimal(row["price"]) > 100} == {2}
    assert len(read_results(f"{out}-failed")) == len(rows("bids.jsonl")) - len(bids) > 0


def test_each_currency_has_one_rate_although_the_server_never_answers_twice_alike(tmp_path: Path, rates: str) -> None:
    out = tmp_path / "rates"
    run("cached_rates", "--rates", rates, "--out", str(out))
    used: dict[str, set[float | None]] = {}
    for bid, row in zip(rows("bids.jsonl"), read_results(str(out)), strict=True):
        assert row["auction"] == bid["auction"]
        rate = None if row["usd"] is None else round(row["usd"] / float(row["price"]), 9)  # the server gives six places
        used.setdefault(bid["currency"], set()).add(rate)
    assert {len(found) for found in used.values()} == {1}
    assert {currency for currency, found in used.items() if found != {None}} == set(BASE_RATES)


def test_fraud_is_found_under_any_failures() -> None:
    def txn(account: int, cents: int, offset: str) -> fraud.Txn:
        return fraud.Txn(account, cents, at(offset))

    txns = [txn(1, 50, "0s"), txn(2, 60_000, "5s"), txn(1, 90_000, "30s"), txn(2, 99, "1m"), txn(2, 70_000, "130s")]
    out = testing.run(fraud.job, {"txns": txns}, kills=2, seeds=20)
    assert out["alerts"] == [fraud.Alert(1, 90_000)]


def test_orders_are_settled_or_overdue_under_any_failures() -> None:
    def order(number: int, price: int, offset: str) -> orders_and_payments.Order:
        return orders_and_payments.Order(number, "ada", Decimal(price), at(offset))

    def payment(number: int, amount: int, offset: str) -> orders_and_payments.Payment:
        return orders_and_payments.Payment(number, Decimal(amount), at(offset))

    orders = [order(1, 10, "0s"), order(2, 20, "1m"), order(3, 30, "2m"), order(4, 40, "3m"), order(5, 50, "40m")]
    payments = [
        payment(2, 20, "30s"), payment(1, 10, "14m"), payment(3, 5, "16m"), payment(4, 40, "18m"), payment(5, 9, "41m")
    ]  # fmt: skip
    out = testing.run(orders_and_payments.job, {"orders": orders, "payments": payments}, kills=2, seeds=8)
    assert out["paid"] == [orders_and_payments.Paid(2, "ada", 0), orders_and_payments.Paid(1, "ada", at("14m"))]
    missing = {row.order: row.missing for row in out["unpaid"]}
    assert missing == {3: Decimal(25), 4: Decimal(40), 5: Decimal(41)}


def test_orders_and_payments_settle_the_orders_of_their_files(capfd: pytest.CaptureFixture[str]) -> None:
    run("orders_and_payments")
    paid, unpaid = oracles.settled(rows("purchases.jsonl"), rows("payments.jsonl"))
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {row["order"]: row["waited"] for row in printed if "waited" in row} == paid
    assert {row["order"]: Decimal(row["missing"]) for row in printed if "missing" in row} == unpaid
    assert len(paid) > 30
    assert len(unpaid) > 5


def test_hot_auctions_are_counted_in_windows() -> None:
    def bid(auction: int, price: int, offset: str) -> hot_auctions.Bid:
        return hot_auctions.Bid(auction, price, at(offset))

    bids = [bid(1, 150, "1s"), bid(1, 50, "2s"), bid(1, 101, "9s"), bid(2, 500, "3s"), bid(1, 200, "12s")]
    out = testing.run(hot_auctions.job(), {"source-kafka": bids}, kills=1, seeds=5)
    windows = sorted((hot.auction, hot.window_end, hot.bids) for hot in out["sink-kafka"])
    assert windows == [(1, at("10s"), 2), (1, at("20s"), 1), (2, at("10s"), 1)]


def test_fraud_prints_an_alert_for_a_large_payment_after_a_tiny_one(capfd: pytest.CaptureFixture[str]) -> None:
    run("fraud")
    probed: dict[int, int] = {}
    expected = []
    for txn in rows("transactions.jsonl"):
        soon_after = txn["at"] - probed.get(txn["account"], -(10**18)) < 60_000_000
        if soon_after and txn["cents"] > 50_000:
            expected.append((txn["account"], txn["cents"]))
        if txn["cents"] < 100:
            probed[txn["account"]] = txn["at"]
        else:
            probed.pop(txn["account"], None)
    alerts = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert expected
    assert [(alert["account"], alert["cents"]) for alert in alerts] == expected
