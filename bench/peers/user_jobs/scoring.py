"""Scores payments with a model, which each worker loads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSink, FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

DATA = Path(__file__).parents[3] / "examples" / "data"


class Payment(Struct):
    account: int
    cents: int


class Score(Payment):
    risk: float


class Scorer:
    def __init__(self, model: str) -> None:
        self.model = json.decode(Path(model).read_bytes())

    def __call__(self, state: tuple[int, int] | None, payment: Payment) -> tuple[Any, Score]:
        payments, cents = state or (0, 0)
        payments, cents = payments + 1, cents + payment.cents
        features = (1.0, math.log(payment.cents), payment.cents * payments / cents)
        logit = sum(weight * feature for weight, feature in zip(self.model["weights"], features, strict=True))
        return (payments, cents), Score(payment.account, payment.cents, 1 / (1 + math.exp(-logit)))


def flow(
    payments: str = f"{DATA}/transactions.jsonl", model: str = f"{DATA}/risk.json", out: str = "s.jsonl"
) -> Dataflow:
    flow = Dataflow("scoring")
    paid = op.map("parsed", op.input("payments", flow, FileSource(Path(payments))), json.Decoder(Payment).decode)
    by_account = op.key_on("by-account", paid, lambda payment: str(payment.account))
    scores = op.stateful_map("scorer", by_account, Scorer(model))
    op.output("scores", op.map_value("lines", scores, lambda row: json.encode(row).decode()), FileSink(Path(out)))
    return flow
