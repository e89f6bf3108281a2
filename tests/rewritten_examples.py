"""The examples that rewrite those of other engines' documentation, and what they give for the rows of their files:
answers of DuckDB, or of a loop over the rows in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from clonos_py import Record
from examples import (
    anomalies,
    converted,
    impressions,
    legislators,
    long_rides,
    page_views,
    salaries,
    short_words,
    state_machine,
    temperature,
    top_speed,
    trades,
)
from tests import oracles

Rows = list[dict[str, Any]]
Answer = Callable[[Mapping[str, Rows]], Rows]
"""From the rows of each source, by its name, the rows of a sink, in any order."""


@dataclass(frozen=True)
class Rewritten:
    """``files`` has the file of each source, ``sinks`` the answer for each sink. The first one writes to the folder of
    the job, others to one whose name ends with their own."""

    module: ModuleType
    files: Mapping[str, str]
    sinks: Mapping[str, Answer]
    final: tuple[str, ...] = ()
    """A row may be given again: the last one with the same values in these columns counts."""

    def inputs(self) -> dict[str, Rows]:
        return {source: oracles.rows(file) for source, file in self.files.items()}


def asked(query: str) -> Answer:
    """A query of tables that have the rows of the sources, each with its place in the file as ``place``."""

    def answer(inputs: Mapping[str, Rows]) -> Rows:
        with duckdb.connect() as connection:
            for source, rows in inputs.items():
                placed = [{**row, "place": place} for place, row in enumerate(rows)]
                connection.register(source, pa.Table.from_pylist(placed))
            found: Rows = connection.sql(query).to_arrow_table().to_pylist()
            return found

    return answer


def contents(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows in a fixed order, their floats rounded."""
    return sorted(str(sorted((name, _rounded(value)) for name, value in row.items())) for row in rows)


def given(rows: Rows, record: type[Record]) -> list[list[Record]]:
    """Eight are read together, so that a run takes a tenth of a second."""
    made = [msgspec.convert(row, record, strict=False) for row in rows]
    return [made[start : start + 8] for start in range(0, len(made), 8)]


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _alerts(inputs: Mapping[str, Rows]) -> Rows:
    paths = {"ab": "y", "cb": "y", "abe": "z", "cbe": "z", "cd": "z", "a": "w", "c": "x", "": "initial"}
    taken: dict[int, str] = {}
    found = []
    for event in inputs["events"]:
        before = taken.get(event["address"], "")
        after = before + event["kind"]
        if after in paths:
            taken[event["address"]] = after
        elif event["kind"] == "g" and paths[before] == "z":
            taken[event["address"]] = ""
        else:
            found.append({**event, "current": paths[before]})
    return found


def _top_speeds(inputs: Mapping[str, Rows]) -> Rows:
    reported: dict[int, float] = {}
    found = []
    for row in _TOPS(inputs):
        if row["meters"] - reported.setdefault(row["car"], row["meters"]) > 50:
            reported[row["car"]] = row["meters"]
            found.append(row)
    return found


_TOPS = asked("""
    SELECT * EXCLUDE place, max(speed) OVER (PARTITION BY car ORDER BY "at" RANGE 10000000 PRECEDING) AS top
    FROM cars ORDER BY car, "at"
    """)
_HIGHEST = asked("""
    SELECT ("at" // 5000000 + 1) * 5000000 AS window_end, max(celsius) AS celsius
    FROM readings GROUP BY window_end HAVING max(celsius) > 20
    """)
_VIEWS = asked("""
    WITH known AS (SELECT "user", arg_max(region, place) AS region FROM users GROUP BY "user")
    SELECT ("at" // 86400000000 - day) * 86400000000 AS window_start,
        coalesce(region, 'unknown') AS region, count(*) AS views
    FROM views LEFT JOIN known USING ("user"), range(7) AS days(day) GROUP BY ALL
    """)
_IMPRESSIONS = asked("""
    SELECT coalesce(s.ad, c.ad) AS ad, s.shown, c.clicked FROM shown s FULL JOIN clicked c
    ON s.ad = c.ad AND c.clicked BETWEEN s.shown - 5000000 AND s.shown + 5000000
    """)
_JUDGED = asked("""
    WITH tens AS (SELECT *, avg(value) OVER ten AS mean, stddev_pop(value) OVER ten AS std FROM metrics
        WINDOW ten AS (PARTITION BY metric ORDER BY "at" ROWS 9 PRECEDING))
    SELECT metric, value, mean, std, coalesce(lag(std) OVER earlier > 0
        AND abs(value - lag(mean) OVER earlier) / lag(std) OVER earlier > 2, false) AS anomalous
    FROM tens WINDOW earlier AS (PARTITION BY metric ORDER BY "at")
    """)
_WORDS = """
    WITH words AS (SELECT unnest(regexp_extract_all(lower(text), '[[:alnum:]]+')) AS word, "at" FROM lines)
    """
_COUNTED = asked(f"""{_WORDS}
    SELECT word, "at" // 5000000 * 5000000 AS window_start, window_start + 5000000 AS window_end, count(*) AS times
    FROM words WHERE len(word) <= 5 GROUP BY ALL
    """)
_REJECTED = asked(f"{_WORDS} SELECT word FROM words WHERE len(word) > 5")
_PEOPLE = asked("""
    SELECT name, grade, salary FROM grades g JOIN salaries s USING (name) WHERE g."at" // 2000000 = s."at" // 2000000
    """)
_LONG_RIDES = asked("""
    SELECT ride FROM rides GROUP BY ride HAVING count(*) FILTER (WHERE NOT begins) = 0
        OR max("at") FILTER (WHERE NOT begins) - min(began) > 7200000000
    """)
_CONVERTED = asked("""
    SELECT o.* EXCLUDE place, rate FROM orders o ASOF LEFT JOIN rates r
    ON o.currency = r.currency AND o."at" >= r.since
    """)
_QUOTED = asked("""
    SELECT time, stock, trade::BIGINT AS trade, CASE WHEN fresh THEN quoted END AS quoted,
        CASE WHEN fresh THEN quote::BIGINT END AS quote
    FROM (SELECT t.*, q.quoted, q.quote, t.time::TIMESTAMPTZ - q.quoted::TIMESTAMPTZ <= INTERVAL 1 MINUTE AS fresh
        FROM trades t ASOF LEFT JOIN quotes q ON t.stock = q.stock AND t.time >= q.quoted)
    """)
_STATES = asked("""
    SELECT state, count(*) FILTER (WHERE party = 'Anti-Administration') AS anti,
        count(*) FILTER (WHERE party = 'Pro-Administration') AS pro,
        row_number() OVER (ORDER BY pro DESC) AS rank_number
    FROM legislators GROUP BY state ORDER BY pro DESC LIMIT 5
    """)

EXAMPLES = (
    Rewritten(temperature, {"readings": "temperatures.jsonl"}, {"hot": _HIGHEST}, final=("window_end",)),
    Rewritten(page_views, {"views": "views.jsonl", "users": "users.jsonl"}, {"out": _VIEWS}),
    Rewritten(impressions, {"shown": "shown.jsonl", "clicked": "clicked.jsonl"}, {"impressions": _IMPRESSIONS}),
    Rewritten(anomalies, {"metrics": "metrics.jsonl"}, {"judged": _JUDGED}),
    Rewritten(top_speed, {"cars": "cars.jsonl"}, {"top-speeds": _top_speeds}),
    Rewritten(short_words, {"lines": "lines.jsonl"}, {"counted": _COUNTED, "rejected": _REJECTED}),
    Rewritten(state_machine, {"events": "protocol.jsonl"}, {"alerts": _alerts}),
    Rewritten(salaries, {"grades": "grades.jsonl", "salaries": "salaries.jsonl"}, {"out": _PEOPLE}),
    Rewritten(long_rides, {"rides": "rides.jsonl"}, {"alerts": _LONG_RIDES}),
    Rewritten(converted, {"orders": "foreign.jsonl", "rates": "rates.jsonl"}, {"out": _CONVERTED}),
    Rewritten(trades, {"trades": "trades.csv", "quotes": "quotes.csv"}, {"out": _QUOTED}),
    Rewritten(legislators, {"legislators": "legislators.csv"}, {"out": _STATES}),
)
