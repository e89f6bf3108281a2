"""The queries in the SQL of DuckDB, over views of the event files with times as whole microseconds.

Each gives the rows, columns and values of the query's job when all events have been read."""

from __future__ import annotations

from pathlib import Path

from clonos_py.evaluation.nexmark.generator import KINDS, SCHEMAS

_TIMES = ("date_time", "expires")
_WINDOW_US, _SLIDE_US = 10_000_000, 2_000_000
_DAY, _MINUTE = (f"strftime(make_timestamp(date_time), '{form}')" for form in ("%Y-%m-%d", "%H:%M"))
_LEVELS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_OFFERS = "FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"


def _by_level(total: str) -> str:
    """An aggregate in total and at each price level."""
    return ", ".join([total, *(f"{total} FILTER ({level})" for level in _LEVELS.values())])


_STATISTICS = ", ".join(map(_by_level, ("count(*)", "count(DISTINCT bidder)", "count(DISTINCT auction)")))

SQL = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, sum(final) // count(*)
        FROM (SELECT a.id, category, max(price) AS final {_OFFERS} GROUP BY ALL) GROUP BY ALL""",
    "q5": f"""WITH counts AS (
            SELECT auction, date_time // {_SLIDE_US} - slide AS slot, count(*) AS num
            FROM bid, range({_WINDOW_US // _SLIDE_US}) AS slides(slide) GROUP BY ALL)
        SELECT auction, num FROM counts
        JOIN (SELECT slot, max(num) AS num FROM counts GROUP BY slot) USING (slot, num)""",
    "q7": f"""SELECT auction, bidder, b.price, date_time, extra FROM bid b
        JOIN (SELECT max(price) AS price, date_time // {_WINDOW_US} AS slot FROM bid GROUP BY slot) m
        ON b.price = m.price AND date_time // {_WINDOW_US} = slot""",
    "q8": f"""SELECT p.id, name, p.date_time // {_WINDOW_US} * {_WINDOW_US} FROM person p
        JOIN (SELECT DISTINCT seller, date_time // {_WINDOW_US} AS slot FROM auction) a
        ON p.id = seller AND p.date_time // {_WINDOW_US} = slot""",
    "q9": f"""SELECT * EXCLUDE place FROM (
            SELECT a.*, auction, bidder, price, b.date_time AS bid_time, b.extra AS bid_extra,
                row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.date_time) AS place {_OFFERS})
        WHERE place = 1""",
    "q11": f"""WITH starts AS (
            SELECT bidder, date_time,
                coalesce(date_time - lag(date_time) OVER bids > {_WINDOW_US}, true)::INTEGER AS begins
            FROM bid WINDOW bids AS (PARTITION BY bidder ORDER BY date_time)),
        numbered AS (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS number FROM starts)
        SELECT bidder, count(*), min(date_time), max(date_time) + {_WINDOW_US} FROM numbered GROUP BY bidder, number""",
    "q15": f"SELECT {_DAY} AS day, {_STATISTICS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {_DAY} AS day, max({_MINUTE}), {_STATISTICS} FROM bid GROUP BY channel, day",
    "q18": """SELECT * EXCLUDE place FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid)
        WHERE place = 1""",
    "q19": """SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid)
        WHERE place <= 10""",
    "q20": """SELECT b.*, a.* EXCLUDE id FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
}  # fmt: skip
"""By query."""


def views(folder: Path) -> list[str]:
    """The statements that create a view of each kind of events in the folder."""
    return [
        f"CREATE VIEW {kind} AS SELECT {', '.join(map(_plain, schema.names))} "
        f"FROM read_parquet('{folder / kind}/*.parquet')"
        for kind, schema in zip(KINDS, SCHEMAS, strict=True)
    ]


def _plain(column: str) -> str:
    return f"epoch_us({column}) AS {column}" if column in _TIMES else column
