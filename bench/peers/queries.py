"""The Nexmark queries in Flink SQL (one file each in ``sql/``), the kinds of events they read, and their sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clonos_py.bench.peers.datasets import Dataset
from clonos_py.model.errors import SettingError

_SQL = Path(__file__).parent / "sql"
QUERIES = tuple(f"q{number}" for number in range(23) if number != 6)
"""All queries that Flink SQL can express: q6 is an OVER window over the updating result of a join."""
PYTHON_QUERIES = ("q1", "q2", "q3", "q14")
"""Queries that also run with Python functions in PyFlink."""
BYTEWAX_QUERIES = ("q1", "q2", "q3", "q8")
_READ = {
    "q3": ("person", "auction"),
    "q8": ("person", "auction"),
    **dict.fromkeys(("q4", "q9", "q20"), ("auction", "bid")),
}
_UNBOUNDED = ("q3", "q4", "q9", "q18", "q19", "q20")
_PYTHON = {
    "q1": (("0.908 * price", "py_euros(price)"),),
    "q2": (("MOD(auction, 123) = 0", "py_is_123rd(auction)"),),
    "q3": (("(P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')", "py_is_local(P.state)"),),
    "q14": (("count_char(", "py_count_char("),),
}


def kinds_read(query: str) -> tuple[str, ...]:
    """The kinds of events that a query reads."""
    return _READ.get(query, ("bid",))


def keeps_everything(query: str) -> bool:
    """Whether the state of a query grows with the stream."""
    return query in _UNBOUNDED


def check(queries: tuple[str, ...]) -> None:
    """Raises SettingError for a query that does not exist."""
    unknown = [query for query in queries if query not in QUERIES]
    if unknown:
        raise SettingError(f"{unknown[0]} is not compared: choose from {', '.join(QUERIES)}")


def statements(dataset: Dataset, late: str) -> list[str]:
    """The statements that create the tables and functions. ``late``: the delay of watermarks, as a SQL interval without
    the word INTERVAL."""
    text = (_SQL / "events.sql").read_text().format(events=dataset.folder.absolute().as_uri(), late=late)
    lines = (line for line in text.splitlines() if not line.startswith("--"))
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def select(query: str, python: bool = False) -> str:
    """The SQL of a query. ``python``: with Python functions in place of SQL expressions."""
    text = (_SQL / f"{query}.sql").read_text()
    for sql, function in _PYTHON[query] if python else ():
        if sql not in text:
            raise AssertionError(f"{query} does not contain {sql!r}")
        text = text.replace(sql, function)
    return text


def sink(query: str, folder: Path) -> dict[str, Any]:
    """The sink of a query: a blackhole, or files for query 10, which is about writing files."""
    if query != "q10":
        return {"connector": "blackhole"}
    options = {
        "path": (folder / "q10").absolute().as_uri(),
        "partition.time-extractor.timestamp-pattern": "$dt $hm:00",
        "sink.partition-commit.delay": "1 min",
        "sink.partition-commit.policy.kind": "success-file",
        "sink.partition-commit.trigger": "partition-time",
        "sink.rolling-policy.check-interval": "1 min",
        "sink.rolling-policy.rollover-interval": "1 min",
    }
    return {"connector": "filesystem", "format": "csv", "partitioned_by": ["dt", "hm"], "options": options}
