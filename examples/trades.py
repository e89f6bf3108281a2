"""Adds to each trade the last quote of its stock, if that is at most a minute old.

clonos run examples/trades.py --runtime local --out trades
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from clonos_py import Job, Record, as_of
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Trade(Record):
    time: datetime
    stock: str
    trade: int


class Quote(Record):
    quoted: datetime
    stock: str
    quote: int


def job(trades: str = f"{DATA}/trades.csv", quotes: str = f"{DATA}/quotes.csv", out: str = "trades") -> Job:
    job = Job("trades")
    traded = job.source(FileSource(trades, Trade), event_time="time").named("trades")
    quoted = job.source(FileSource(quotes, Quote), event_time="quoted").named("quotes")
    joined = traded.join(quoted, on="stock", within=as_of(oldest="1m"), how="left").named("joined")
    joined.sink(FileSink(out)).named("out")
    return job
