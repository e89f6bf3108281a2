"""Ordinary mistakes: the code, and the message to its author. ``# HERE`` marks the line that must be named."""

# ruff: noqa: E501 - one mistake, one line
# fmt: off

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BEGINNING = '''\
from __future__ import annotations
import ctypes, os, signal, sys, threading, time
from datetime import datetime, timezone
from decimal import Decimal
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    key: int
    value: int
    at: Instant

class Named(Record):
    name: str
    worth: float

class Total(Record):
    key: int
    total: int

rows = [Row(number % 3, number, number * 1_000_000) for number in range(30)]
job = Job("mistaken", runtime="local")
source = job.source(MemorySource(rows), event_time="at").named("rows")
out = FileSink("out", format="csv")

'''


@dataclass(frozen=True)
class Mistake:
    """``message``: a part of the error message. ``repaired`` replaces the line marked HERE: the job then runs to its end."""

    name: str
    text: str
    message: str
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    code: int = 1
    repaired: str | None = None

    @property
    def lines(self) -> list[str]:
        return (BEGINNING + self.text).splitlines()

    @property
    def place(self) -> int | None:
        """The number of the marked line."""
        return next((number for number, line in enumerate(self.lines, 1) if line.endswith("# HERE")), None)

    @property
    def source(self) -> str:
        return "\n".join(line.removesuffix("  # HERE") for line in self.lines) + "\n"

    @property
    def repaired_source(self) -> str:
        assert self.repaired is not None
        return "\n".join(self.repaired if line.endswith("# HERE") else line for line in self.lines) + "\n"


def function(body: str, returns: str = "Row", use: str = "source.map(mapped).named('m').sink(out)") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def mapped(row: Row) -> {returns}:\n{lines}\n\n{use}"


def process(body: str, more: str = "") -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    further = "".join(f"    {line}\n" for line in more.splitlines())
    return (
        f"class Mapped(Process[Row, Row]):\n{further}    def on_row(self, row: Row, ctx: Context) -> Row:\n{lines}\n\n"
        "source.key_by('key').process(Mapped).named('p').sink(out)"
    )


def reading(file: str, format: str, shape: str = "Named") -> str:
    return f"job.source(FileSource({file!r}, {shape}, {format!r})).named('file').sink(out)"


GOOD = "return row"

WRITTEN = [
    Mistake("a column that is not there", "source.filter(col('vale') > 1).sink(out)  # HERE", "filter: no column 'vale'; there are key, value, at"),
    Mistake("a key that is not there", "source.key_by('kye').aggregate(n=count())  # HERE", "no column 'kye'"),
    Mistake("a field in a Record that no column fills", "source.select(Named).sink(out)  # HERE", "Named.name"),
    Mistake("a misspelt verb", "source.fliter(col('key') > 1)  # HERE", "has no attribute 'fliter'"),
    Mistake("a misspelt keyword", "source.union(other=source)  # HERE", "unexpected keyword argument 'other'"),
    Mistake("a number compared with a text", "source.filter(col('key') == 'a').sink(out)  # HERE", "key is int64"),
    Mistake("a condition that is no condition", "source.filter(col('key')).sink(out)  # HERE", "int64, not bool"),
    Mistake("and instead of &", "source.filter((col('key') > 1) and (col('key') < 3)).sink(out)  # HERE", "&"),
    Mistake("a Python comparison of a column", "source.filter(col('key') > 1 == True if col('key') else 0)  # HERE", "&"),
    Mistake("a lambda without types", "source.map(lambda row: row).sink(out)  # HERE", "does not say what it returns"),
    Mistake("a function without types", "def mapped(row):\n    return row\n\nsource.map(mapped).sink(out)  # HERE", "returns"),
    Mistake("a function that takes too much", "def mapped(row: Row, more: int) -> Row:\n    return row\n\nsource.map(mapped).sink(out)  # HERE", "it takes a row and, if it wants, `ctx`"),
    Mistake("a lock in a closure", "lock = threading.Lock()\ndef made():\n    held = lock\n    def mapped(row: Row) -> Row:\n        with held:\n            return row\n    return mapped\n\nsource.map(made()).sink(out)  # HERE", "cannot be sent to a task because of held"),
    Mistake("a database connection in a closure", "import sqlite3\ndef made():\n    rates = sqlite3.connect(':memory:')\n    def mapped(row: Row) -> Row:\n        rates.execute('')\n        return row\n    return mapped\n\nsource.map(made()).sink(out)  # HERE", "cannot be sent to a task because of rates"),
    Mistake("one name twice", "source.named('a')\nsource.filter(col('key') > 1).named('a')  # HERE", "'a' is the name of"),
    Mistake("a stream joined with itself as a union", "source.union(source).sink(out)  # HERE", "every row would count twice"),
    Mistake("a job without a sink", "source.filter(col('key') > 1)", "job 'mistaken' has no sink"),
    Mistake("a table into a file", "source.key_by('key').aggregate(n=count()).sink(out)  # HERE", "only appends"),
    Mistake("a window without event time", "other = job.source(MemorySource([Named('a', 1.0)])).named('o')\nother.key_by('name').window(tumbling('1s')).aggregate(n=count()).sink(out)  # HERE", "event time"),
    Mistake("a window of no length", "source.key_by('key').window(tumbling('0s'))  # HERE", "0s"),
    Mistake("a duration without a unit", "source.key_by('key').window(tumbling('5'))  # HERE", "'5' has no unit"),
    Mistake("an aggregate of a text", "other = job.source(MemorySource([Named('a', 1.0)])).named('o')\nother.key_by('worth').aggregate(n=sum_('name'))  # HERE", "name"),
    Mistake("an undeclared state", process("self.total = 3\nreturn row").replace("self.total = 3", "self.total = 3  # HERE"), "write 'total = state"),
    Mistake("a format that is unknown", "job.source(FileSource('x', Row, 'xml')).sink(out)  # HERE", "unknown format 'xml'"),
    Mistake("a naive datetime", "at = datetime(2026, 1, 1)\nsource.filter(col('at') > at).sink(out)  # HERE", "timezone"),
    Mistake("a literal too large for an integer", "source.filter(col('value') > 2 ** 70).sink(out)  # HERE", "1180591620717411303424"),
    Mistake("a syntax error", "def broken(:  # HERE", "SyntaxError"),
    Mistake("an import that fails", "import no_such_module  # HERE", "No module named 'no_such_module'"),
    Mistake("an exception while the job is written", "missing = {}['nope']  # HERE", "KeyError: 'nope'"),
]

READ = [
    Mistake("a file that is missing", reading("nothing.csv", "csv"), "nothing.csv: no such file"),
    Mistake("an empty file is no error", reading("empty.csv", "csv"), "", files={"empty.csv": b""}, code=0),
    Mistake("a header only is no error", reading("header.csv", "csv"), "", files={"header.csv": b"name,worth\n"}, code=0),
    Mistake("a malformed line of CSV", reading("bad.csv", "csv"), "bad.csv, line 3", files={"bad.csv": b"name,worth\na,1\nb\n"}),
    Mistake("a text where a number is declared", reading("bad.csv", "csv"), "bad.csv, line 3", files={"bad.csv": b"name,worth\na,1\nb,many\n"}),
    Mistake("a column that the file does not have", reading("bad.csv", "csv"), "worth", files={"bad.csv": b"name,value\na,1\n"}),
    Mistake("a malformed line of JSON", reading("bad.jsonl", "jsonl"), "bad.jsonl, line 2", files={"bad.jsonl": b'{"name":"a","worth":1}\n{"name":\n'}),
    Mistake("a null that is not declared", reading("bad.jsonl", "jsonl"), "bad.jsonl, line 2", files={"bad.jsonl": b'{"name":"a","worth":1}\n{"name":null,"worth":1}\n'}),
    Mistake("an integer of 30 digits", reading("bad.jsonl", "jsonl", "Total"), "bad.jsonl, line 1", files={"bad.jsonl": b'{"key":1,"total":123456789012345678901234567890}\n'}),
    Mistake("bytes that are not text", reading("bad.csv", "csv"), "bad.csv", files={"bad.csv": b"name,worth\n\xff\xfe\xfa,1\n"}),
    Mistake("a file that is not Parquet", reading("bad.parquet", "parquet"), "bad.parquet", files={"bad.parquet": b"name,worth\n"}),
    Mistake("two jobs in one file", "other = Job('other')\nother.source(MemorySource(rows)).sink(FileSink('there', 'csv'))\nsource.sink(out)", "job.py has 2 jobs; it has job, other: name one, as job.py:job"),
]

WORKED = [
    Mistake("a division by zero", function("return Row(row.key, 1 // (row.value - 7), row.at)  # HERE"), 'failed on record {"key":1,"value":7,', repaired="    return row"),
    Mistake("None instead of a row", function("if row.value == 9:\n    return None\nreturn row").replace("def mapped(row: Row) -> Row:", "def mapped(row: Row) -> Row:  # HERE"), "None is neither a Record nor a dict"),
    Mistake("a text in a field of integers", function("return Row('x', row.value, row.at) if row.value == 9 else row").replace("def mapped(row: Row) -> Row:", "def mapped(row: Row) -> Row:  # HERE"), "field 'key' is 'x' (str) where an int is declared"),
    Mistake("None in a field that is not declared so", function("return Row(row.key, None, row.at)").replace("def mapped(row: Row) -> Row:", "def mapped(row: Row) -> Row:  # HERE"), "field 'value' is None but not declared '| None'"),
    Mistake("an integer of 70 bits", function("return Row(row.key, 2 ** 70, row.at)").replace("def mapped(row: Row) -> Row:", "def mapped(row: Row) -> Row:  # HERE"), "field 'value' is 1180591620717411303424"),
    Mistake("a record of another class", function("return Named('a', 1.0)").replace("def mapped(row: Row) -> Row:", "def mapped(row: Row) -> Row:  # HERE"), "Named has no field 'key'"),
    Mistake("a Record made of too little", function("return Row(row.key)  # HERE"), "Missing required argument 'value'", repaired="    return row"),
    Mistake("a misspelt field", function("return Row(row.key, row.valeu, row.at)  # HERE"), "has no attribute 'valeu'", repaired="    return row"),
    Mistake("a record that is changed", function("row.value = 1  # HERE\nreturn row"), "immutable", repaired="    pass"),
    Mistake("an exception of the user's own in a helper", "def helper(value: int) -> int:\n    if value == 20:\n        raise RuntimeError('twenty')  # HERE\n    return value\n\n" + function("return Row(row.key, helper(row.value), row.at)"), "RuntimeError: twenty", repaired="        pass"),
    Mistake("endless recursion", "def deep(value: int) -> int:\n    return deep(value + 1)\n\n" + function("return Row(row.key, deep(row.value), row.at)  # HERE"), "RecursionError", repaired="    return row"),
    Mistake("a process that gives another class", process("return Named('a', 1.0)").replace("def on_row(self, row: Row, ctx: Context) -> Row:", "def on_row(self, row: Row, ctx: Context) -> Row:  # HERE"), "not one of its outputs"),
    Mistake("an exception in a process", process("if row.value == 11:\n    raise KeyError('eleven')  # HERE\nreturn row"), "operator 'p' failed on record", repaired="            pass"),
    Mistake("an exception in a timer", process("self.tick.set(ctx.event_time + 1)\nreturn row", "tick = event_timer()\n@tick.fires\ndef ticked(self, ctx: Context) -> None:\n    raise KeyError('rung')  # HERE"), "operator 'p' failed on timer 'tick'", repaired="        pass"),
    Mistake("a batch function that raises", "def mapped(batch):\n    raise RuntimeError('boom')  # HERE\n\nsource.map_batches(mapped, returns=Row).named('b').sink(out)", "operator 'b'", repaired="    return batch"),
    Mistake("a batch without a column", "def mapped(batch):\n    return batch.select(['key'])\n\nsource.map_batches(mapped, returns=Row).named('b').sink(out)", "column 'value'"),
    Mistake("an overflow in an expression", "source.select('key', 'at', value=col('value') + 9223372036854775807).named('e').sink(out)", "overflow, at row {"),
    Mistake("a division by zero in an expression", "source.select('key', 'at', value=col('value') // (col('value') - 5)).named('e').sink(out)", "divide by zero, at row {"),
    Mistake("a metric without a legal name", function("ctx.metrics.counter('two words').inc()  # HERE\nreturn row").replace("row: Row)", "row: Row, ctx: Context)"), "operator 'm' failed on record {\"key\":0,\"value\":0,\"at\":0}: 'two words' is no name of a metric", repaired="    pass"),
    Mistake("a metric named by data", process("ctx.metrics.counter(f'of_{row.key}_{row.value * 100 + 1}_{time.time_ns()}').inc()\nfor n in range(99):\n    ctx.metrics.counter(f'of_{n}').inc()  # HERE\nreturn row"), "is one too many: an operator has at most 64; names must not come from data"),
    Mistake("a service that cannot be opened", "@service\ndef closed():\n    raise OSError('no database')\n    yield str\n\ndef mapped(row: Row, ctx: Context) -> Row:\n    return ctx.call(closed, 1)  # HERE\n\nsource.map(mapped).named('m').sink(out)", "closed cannot be opened: OSError: no database"),
    Mistake("a sink's folder that is a file", "open('afile', 'w').close()\nsource.sink(FileSink('afile/out', 'csv')).named('s')", "afile/out: cannot be written"),
]

EXITS = [
    Mistake("sys.exit in a function", function("if row.value == 12:\n    sys.exit(0)  # HERE\nreturn row"), "operator 'm' failed on record {\"key\":0,\"value\":12,"),
    Mistake("a KeyboardInterrupt of a function", function("if row.value == 12:\n    raise KeyboardInterrupt  # HERE\nreturn row"), "operator 'm' failed on record {\"key\":0,\"value\":12,"),
]
"""Exits that can be caught. ``test_ended_by_functions.py`` has the others."""
