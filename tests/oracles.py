"""The expected results of the examples for the rows of their files, in plain Python: rows in their order, one by
one."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

DATA = Path(__file__).resolve().parents[1] / "examples" / "data"
_MINUTE_US = 60_000_000
_SECONDS_OF_AN_HOUR = 3_600


def rows(pattern: str) -> list[dict[str, Any]]:
    """Of the files of lines of JSON, or of CSV, whose values are text."""
    files = sorted(DATA.glob(pattern))
    if pattern.endswith(".csv"):
        return [row for file in files for row in csv.DictReader(file.open())]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def sessions(pages: Iterable[Row]) -> tuple[set[tuple[str, int, int, int]], set[int]]:
    """User, begin, end and number of pages of each session, and the ids of late pages."""
    spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    too_late, watermark = set(), 0
    for page in pages:
        begin, end, count = page["at"], page["at"] + 5 * _MINUTE_US, 1
        near = [span for span in spans[page["user"]] if span[0] <= end and begin <= span[1] and span[1] > watermark]
        begin, end = min([begin, *(span[0] for span in near)]), max([end, *(span[1] for span in near)])
        if end <= watermark:
            too_late.add(page["id"])
            continue
        others = [span for span in spans[page["user"]] if span not in near]
        spans[page["user"]] = [*others, (begin, end, count + sum(span[2] for span in near))]
        watermark = max(watermark, page["at"] - _MINUTE_US)
    return {(user, *span) for user, found in spans.items() for span in found}, too_late


def payers(orders: Iterable[Row], payments: Iterable[Row]) -> list[tuple[int, str, str | None]]:
    """Order, customer and amount of each payment within 15 minutes; the amount is None if there was none."""
    found: list[tuple[int, str, str | None]] = []
    by_order = defaultdict(list)
    for payment in payments:
        by_order[payment["order"]].append(payment)
    for order in orders:
        amounts = [p["amount"] for p in by_order[order["id"]] if 0 <= p["at"] - order["at"] <= 15 * _MINUTE_US]
        found.extend((order["id"], order["customer"], amount) for amount in amounts or [None])
    return found


def statements(orders: Iterable[Row]) -> list[tuple[int, int, Decimal]]:
    """Of each order, what its customer has ordered so far: how many, and the sum."""
    found, totals = [], defaultdict[str, list[Decimal]](list)
    for order in orders:
        totals[order["customer"]].append(Decimal(order["price"]))
        found.append((order["id"], len(totals[order["customer"]]), sum(totals[order["customer"]], Decimal(0))))
    return found


def rises(orders: Iterable[Row]) -> dict[int, int]:
    """By order: how many orders of its customer up to it were dearer than the one before, in a row."""
    found: dict[int, int] = {}
    last: dict[str, Row] = {}
    for order in sorted(orders, key=lambda order: order["at"]):
        before = last.get(order["customer"])
        dearer = before is not None and Decimal(order["price"]) > Decimal(before["price"])
        found[order["id"]] = found[before["id"]] + 1 if before is not None and dearer else 0
        last[order["customer"]] = order
    return found


def flagged(transactions: Iterable[Row], limits: Iterable[Row]) -> list[tuple[int, int, str]]:
    """Account, time and limit of each transaction that is above a limit of its time."""
    changes = list(limits)
    found = []
    for txn in transactions:
        cents = {limit["name"]: limit["cents"] for limit in changes if limit["at"] < txn["at"]}
        found += [(txn["account"], txn["at"], name) for name, most in cents.items() if most and txn["cents"] > most]
    return found


def settled(orders: Iterable[Row], payments: Iterable[Row]) -> tuple[dict[int, int], dict[int, Decimal]]:
    """By order how long a payment was waited for, and the amount missing from those that were not paid in time."""
    paid, unpaid = {}, {}
    by_time = sorted(payments, key=lambda row: row["at"])
    for order in orders:
        left = Decimal(order["price"])
        for payment in by_time:
            if payment["order"] == order["id"] and payment["at"] < order["at"] + 15 * _MINUTE_US:
                left -= Decimal(payment["amount"])
                if left <= 0:
                    paid[order["id"]] = max(0, payment["at"] - order["at"])
                    break
        if left > 0:
            unpaid[order["id"]] = left
    return paid, unpaid


def debts(orders: Iterable[Row], payments: Iterable[Row]) -> dict[str, tuple[int, Decimal]]:
    """By customer the number of orders that are not paid in full, and what is missing."""
    paid: dict[int, Decimal] = defaultdict(Decimal)
    for payment in payments:
        paid[payment["order"]] += Decimal(payment["amount"])
    missing: dict[str, list[Decimal]] = defaultdict(list)
    for order in orders:
        if (left := Decimal(order["price"]) - paid[order["id"]]) > 0:
            missing[order["customer"]].append(left)
    return {customer: (len(amounts), sum(amounts, Decimal())) for customer, amounts in missing.items()}


def distinct(events: Iterable[Row]) -> set[tuple[str, int]]:
    """Id and attempt of each event that is the first, or an hour later than the one that passed before it."""
    passed: dict[str, int] = {}
    found = set()
    for event in events:
        if event["id"] not in passed or event["at"] >= passed[event["id"]] + 60 * _MINUTE_US:
            passed[event["id"]] = event["at"]
            found.add((event["id"], event["attempt"]))
    return found


def scores(payments: Iterable[Row], weights: tuple[float, float, float]) -> list[tuple[int, int, float]]:
    """Account, cents and risk, in order."""
    bias, of_size, of_ratio = weights
    before: dict[int, list[int]] = defaultdict(list)
    found = []
    for payment in payments:
        account, cents = payment["account"], payment["cents"]
        before[account].append(cents)
        ratio = cents / (sum(before[account]) / len(before[account]))
        odds = math.exp(bias + of_size * math.log(cents) + of_ratio * ratio)
        found.append((account, cents, odds / (1 + odds)))
    return found


def volumes(orders: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """By symbol the number of orders and their quantity."""
    found: dict[str, tuple[int, int]] = {}
    for order in orders:
        count, quantity = found.get(order["symbol"], (0, 0))
        found[order["symbol"]] = (count + 1, quantity + order["quantity"])
    return found


def features(trips: Iterable[Row]) -> dict[int, tuple[int, float, float]]:
    """By trip its hour, speed and the logarithm of its length."""
    return {
        int(trip["id"]): (
            datetime.fromisoformat(trip["started"]).hour,
            float(trip["km"]) / (int(trip["seconds"]) / _SECONDS_OF_AN_HOUR),
            math.log(1 + float(trip["km"])),
        )
        for trip in trips
    }
